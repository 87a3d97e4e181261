"""Calibrated probabilities: the sigmoid of a line with bends, fitted on the dev split.

With one slope it is Platt's (1999). It rises everywhere, so calibrated labels rank as their scores
do. `longtail.training.calibration.fit` fits it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.special import expit

from longtail.models.bundle.manifest import Calibration
from longtail.models.native.library import F64, FLOAT, INT, function

_log_odds = function(
    "calibrated_log_odds", values=F64, num_values=INT, intercept=FLOAT, knots=F64["num_knots"],
    slopes=F64["num_knots+1"], num_knots=INT, found=F64.out,
)  # fmt: skip
IDENTITY = Calibration(knots=(0.0,), slopes=(1.0, 1.0), intercept=0.0)
"""The calibration of scores that are log-odds already."""


def log_odds_of(
    calibration: Calibration, values: Float32[np.ndarray, "*shape"] | Float64[np.ndarray, "*shape"]
) -> Float64[np.ndarray, "*shape"]:
    """Return the calibrated log-odds that labels are right, in nats.

    Args:
        calibration: The scorer's calibration.
        values: Its scores; -inf, of a label that it can't score, stays so.
    """
    values = np.ascontiguousarray(values, dtype=np.float64)
    found: Float64[np.ndarray, "*shape"] = np.empty(values.shape)
    knots, slopes = _bends(calibration)
    _log_odds(values, values.size, calibration.intercept, knots, slopes, len(knots), found)
    return found


@lru_cache(maxsize=1024)
def _bends(
    calibration: Calibration,
) -> tuple[Float64[np.ndarray, knot], Float64[np.ndarray, piece]]:
    """Return the knots and slopes of a calibration."""
    return np.array(calibration.knots), np.array(calibration.slopes)


def by_rarity(
    calibration: Calibration,
    log_odds: Float64[np.ndarray, "*shape"],
    counts: Int64[np.ndarray, "*shape"],
) -> Float64[np.ndarray, "*shape"]:
    """Return log-odds corrected by the labels' training counts (see `Calibration`)."""
    knots, places = np.log1p(calibration.counts), np.log1p(counts)
    shifts = np.interp(places, knots, calibration.shifts)
    found: Float64[np.ndarray, "*shape"] = (
        shifts + np.interp(places, knots, calibration.factors) * log_odds
    )
    return found


def most_by_rarity(
    calibration: Calibration, log_odds: Float64[np.ndarray, "*shape"]
) -> Float64[np.ndarray, "*shape"]:
    """Return the largest `by_rarity` of all counts: between knots it is linear in ln(1 + n)."""
    lines = zip(calibration.shifts, calibration.factors, strict=True)
    found: Float64[np.ndarray, "*shape"] = np.max([a + b * log_odds for a, b in lines], axis=0)
    return found


def probabilities_of(
    calibration: Calibration,
    values: Float32[np.ndarray, "*shape"] | Float64[np.ndarray, "*shape"],
    counts: Int64[np.ndarray, "*shape"],
) -> Float64[np.ndarray, "*shape"]:
    """Return calibrated probabilities, given the labels' training counts."""
    log_odds = by_rarity(calibration, log_odds_of(calibration, values), counts)
    probabilities: Float64[np.ndarray, "*shape"] = expit(log_odds)
    return probabilities


def rises(
    values: Float64[np.ndarray, "*shape"], knots: Sequence[float] | Float64[np.ndarray, knot]
) -> Float64[np.ndarray, "*shape piece"]:
    """Return how far each value reaches into each piece of a line with bends at the knots."""
    starts, stops = knots, (*knots[1:], np.inf)
    pieces = [np.clip(values, a, b) - a for a, b in zip(starts, stops, strict=True)]
    found: Float64[np.ndarray, "*shape piece"] = np.stack(
        [np.minimum(values - knots[0], 0), *pieces], axis=-1
    )
    return found
