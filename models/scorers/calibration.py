"""Calibrated probabilities: the sigmoid of a line with bends, fitted on the dev split.

With one slope it is Platt's (1999). It rises everywhere, so calibrated labels rank as their scores
do. `longtail.training.calibration.fit` fits it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.special import expit

from longtail.models.bundle.manifest import Calibration

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
    values = values.astype(np.float64)
    knots, slopes = calibration.knots, calibration.slopes
    log_odds = calibration.intercept + slopes[0] * np.minimum(values - knots[0], 0)
    # Each piece adds its part of the rise, so the sum rises too, whatever rounding does.
    for start, stop, slope in zip(knots, (*knots[1:], np.inf), slopes[1:], strict=True):
        # As `np.clip`, which takes twice as long for the few labels of a text.
        log_odds += slope * (np.minimum(np.maximum(values, start), stop) - start)
    found: Float64[np.ndarray, "*shape"] = log_odds
    return found


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
