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
"""Of scores that are log-odds already."""


Values = Float32[np.ndarray, "*shape"] | Float64[np.ndarray, "*shape"]


def log_odds_of(
    calibration: Calibration, values: Values, counts: Int64[np.ndarray, "*shape"] | None = None
) -> Float64[np.ndarray, "*shape"]:
    """Return the calibrated log-odds that labels are right, in nats.

    Args:
        calibration: Of the scorer.
        values: Its scores; -inf, of a label that it can't score, stays so.
        counts: Training documents of the labels; None: the log-odds that the scorer's blends add
            up, whatever the label.
    """
    values = values.astype(np.float64)
    knots, slopes = calibration.knots, calibration.slopes
    log_odds = calibration.intercept + slopes[0] * np.minimum(values - knots[0], 0)
    # Each piece adds its part of the rise, so the sum rises too, whatever rounding does.
    for start, stop, slope in zip(knots, (*knots[1:], np.inf), slopes[1:], strict=True):
        # As `np.clip`, which takes twice as long for the few labels of a text.
        log_odds += slope * (np.minimum(np.maximum(values, start), stop) - start)
    if counts is not None:
        shifts, factors = line_of(calibration, counts)
        log_odds = shifts + factors * log_odds
    found: Float64[np.ndarray, "*shape"] = log_odds
    return found


def line_of(
    calibration: Calibration, counts: Int64[np.ndarray, "*shape"]
) -> tuple[Float64[np.ndarray, "*shape"], Float64[np.ndarray, "*shape"]]:
    """Return shift and factor of the log-odds of labels with so many training documents."""
    if (line := calibration.rarity) is None:
        return np.zeros(counts.shape), np.ones(counts.shape)
    knots, places = np.log1p(line.counts), np.log1p(counts)
    return np.interp(places, knots, line.shifts), np.interp(places, knots, line.factors)


def probabilities_of(
    calibration: Calibration, values: Values, counts: Int64[np.ndarray, "*shape"]
) -> Float64[np.ndarray, "*shape"]:
    """Return the calibrated probabilities that labels are right (see `log_odds_of`)."""
    probabilities: Float64[np.ndarray, "*shape"] = expit(log_odds_of(calibration, values, counts))
    return probabilities


def largest_probabilities(
    calibration: Calibration, values: Values
) -> Float64[np.ndarray, "*shape"]:
    """Return the probabilities of labels that no label of at most these scores has more than.

    Of one score, log-odds are linear between the knots of the line by rarity: largest at a knot.
    """
    counts = (0,) if calibration.rarity is None else calibration.rarity.counts
    found: Float64[np.ndarray, "*shape"] = np.max(
        [probabilities_of(calibration, values, np.full(values.shape, n)) for n in counts], axis=0
    )
    return found


def rises(
    values: Float64[np.ndarray, "*shape"], knots: Sequence[float] | Float64[np.ndarray, knot]
) -> Float64[np.ndarray, "*shape piece"]:
    """Return how far each value lies in each piece of a line with bends at the knots."""
    starts, stops = knots, (*knots[1:], np.inf)
    pieces = [np.clip(values, a, b) - a for a, b in zip(starts, stops, strict=True)]
    found: Float64[np.ndarray, "*shape piece"] = np.stack(
        [np.minimum(values - knots[0], 0), *pieces], axis=-1
    )
    return found
