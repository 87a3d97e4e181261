"""The log loss of a blend, its gradient and its curvature: calls of `log_loss.c`."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64, Int64

from longtail.models.native.library import BOOL, F64, I64, INT, Converter, function

_PAIRS: dict[str, Converter] = {
    "evidence": F64["num_pairs num_terms"], "knots": I64["num_pairs"], "shares": F64["num_pairs"],
    "weights": F64["num_pairs"], "at_knots": F64["num_knots num_terms"], "num_pairs": INT,
    "num_knots": INT, "num_terms": INT,
}  # fmt: skip
_add_up = function(
    "log_loss_add_up", **_PAIRS, is_true=BOOL["num_pairs"],
    gradient=F64.out["num_knots num_terms"], total=F64.out["1"],
)  # fmt: skip
_add_curvature = function(
    "log_loss_add_curvature", **_PAIRS, own=F64.out["num_knots num_terms num_terms"],
    next_one=F64.out["num_knots num_terms num_terms"],
)  # fmt: skip


def log_loss_and_gradient(
    evidence: Float64[np.ndarray, "pair term"],
    knots: Int64[np.ndarray, pair],
    shares: Float64[np.ndarray, pair],
    is_true: Bool[np.ndarray, pair],
    weights: Float64[np.ndarray, pair],
    at_knots: Float64[np.ndarray, "knot term"],
) -> tuple[float, Float64[np.ndarray, "knot term"]]:
    """Return the weighted log loss of pairs in nats, and its gradient.

    Args:
        evidence: Of each pair; the first term is 1.
        knots: The knot at or below each pair's label.
        shares: Of the next knot in the label's coefficients.
        is_true: Whether the label is right.
        weights: Of the pairs.
        at_knots: The coefficients.
    """
    gradient = np.zeros_like(at_knots)
    value = np.zeros(1)
    pairs = (evidence, knots, shares, weights, at_knots, len(knots), *at_knots.shape)
    _add_up(*pairs, is_true, gradient, value)
    return float(value[0]), gradient


def log_loss_curvature(
    evidence: Float64[np.ndarray, "pair term"],
    knots: Int64[np.ndarray, pair],
    shares: Float64[np.ndarray, pair],
    weights: Float64[np.ndarray, pair],
    at_knots: Float64[np.ndarray, "knot term"],
) -> Float64[np.ndarray, "knot term knot term"]:
    """Return the second derivatives of the log loss (see `log_loss_and_gradient`)."""
    num_knots, num_terms = at_knots.shape
    own, next_one = (np.zeros((num_knots, num_terms, num_terms)) for _ in range(2))
    pairs = (evidence, knots, shares, weights, at_knots, len(knots), *at_knots.shape)
    _add_curvature(*pairs, own, next_one)
    matrix = np.zeros((num_knots, num_terms, num_knots, num_terms))
    for knot in range(num_knots):
        matrix[knot, :, knot] += own[knot]
        if knot + 1 < num_knots:
            matrix[knot, :, knot + 1] += next_one[knot]
            matrix[knot + 1, :, knot] += next_one[knot]
    return matrix
