"""Fitting calibrated probabilities on a split, and telling how far probabilities can be trusted."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float32, Float64
from scipy.special import logit

from longtail.models.bundle.manifest import Calibration
from longtail.models.scorers.calibration import rises
from longtail.training.calibration.minimum import logistic_regression

_MAX_KNOTS = 9
_TRUE_PAIRS_A_KNOT = 50
"""With fewer of them there is no bend, so Platt's two parameters are fitted."""
_LEAST_SLOPE = 1e-3
"""Nats for a standard deviation of the true pairs' scores: rising, if hardly."""
_DIGITS = 6
"""Significant ones kept; the optimiser's last bits may differ from machine to machine."""


def fit_calibration(
    scores: Float32[np.ndarray, pair],
    is_true: Bool[np.ndarray, pair],
    weights: Float64[np.ndarray, pair],
    max_knots: int = _MAX_KNOTS,
) -> Calibration | None:
    """Fit log-odds of scores by maximum likelihood: a line with bends that rises everywhere.

    The bends are at quantiles of the true pairs' scores. The likelihood is concave in the slopes
    and the intercept, so there is one answer. Targets are those of Platt (1999, section 2.2):
    (n + 1) / (n + 2) for the n true pairs and 1 / (m + 2) for the m false ones, which keeps
    probabilities off 0 and 1 where all scores of one kind are higher than all of the other.

    Args:
        scores: Finite.
        is_true: Whether the label is right.
        weights: Pairs that each stands for.
        max_knots: Bends, at most; fewer where few pairs are true.

    Returns:
        The calibration; None where no pair is true. Where all n are, every score has about the
        log-odds of Platt's target, ln(n + 1): a scorer that is never wrong is not left out.
    """
    num_true = float(weights[is_true].sum())
    num_false = float(weights[~is_true].sum())
    if num_true == 0:
        return None
    true_scores = scores[is_true].astype(np.float64)
    scale = float(true_scores.std()) or 1.0
    if num_false == 0:
        slope = rounded(_LEAST_SLOPE / scale)
        middle = rounded(np.median(true_scores))
        return Calibration((middle,), (slope, slope), rounded(np.log(num_true + 1)))
    knots, num_slopes = _knots(true_scores, max_knots)
    risen = rises(scores.astype(np.float64), knots) / scale
    if num_slopes == 1:
        risen = risen.sum(axis=1, keepdims=True)
    columns = np.column_stack([np.ones(len(risen)), risen])
    targets = np.where(is_true, (num_true + 1) / (num_true + 2), 1 / (num_false + 2))

    start = np.concatenate([[logit(num_true / (num_true + num_false))], np.ones(num_slopes)])
    least = np.array([-np.inf, *[_LEAST_SLOPE] * num_slopes])
    found = logistic_regression(columns, targets, start, least, weights=weights)
    slopes = np.broadcast_to(found[1:] / scale, num_slopes if num_slopes > 1 else 2)
    return Calibration(
        knots=tuple(knots.tolist()),
        slopes=tuple(rounded(slope) for slope in slopes),
        intercept=rounded(found[0]),
    )


def _knots(
    true_scores: Float64[np.ndarray, true], max_knots: int
) -> tuple[Float64[np.ndarray, knot], int]:
    """Return where the line may bend, and how many slopes it has; with one slope it doesn't."""
    num_knots = min(max_knots, len(true_scores) // _TRUE_PAIRS_A_KNOT)
    if num_knots == 0:
        return np.array([rounded(np.median(true_scores))]), 1
    shares = np.arange(1, num_knots + 1) / (num_knots + 1)
    knots = np.unique([rounded(knot) for knot in np.quantile(true_scores, shares)])
    return knots, len(knots) + 1


def rounded(value: float) -> float:
    """Return a fitted number, rounded to the digits that are stored."""
    return float(f"{value:.{_DIGITS}g}")
