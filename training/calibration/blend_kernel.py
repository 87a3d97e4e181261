"""The log loss of a blend, its gradient and its curvature: the compiled loops over pairs."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float64, Int64

from longtail.models.jit import compiled


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
    value = _add_up(evidence, knots, shares, is_true, weights, at_knots, gradient)
    return float(value), gradient


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
    _add_curvature(evidence, knots, shares, weights, at_knots, own, next_one)
    matrix = np.zeros((num_knots, num_terms, num_knots, num_terms))
    for knot in range(num_knots):
        matrix[knot, :, knot] += own[knot]
        if knot + 1 < num_knots:
            matrix[knot, :, knot + 1] += next_one[knot]
            matrix[knot + 1, :, knot] += next_one[knot]
    return matrix


@compiled
def _log_odds(evidence, below, above, share):
    """Return the log-odds of a pair, whose coefficients lie between those of two knots."""
    score = 0.0
    for term in range(len(evidence)):
        score += ((1 - share) * below[term] + share * above[term]) * evidence[term]
    return score


@compiled
def _add_curvature(evidence, knots, shares, weights, at_knots, own, next_one):
    """Add p (1 - p) x x^T of each pair: of a knot with itself, and with the next one."""
    num_terms = evidence.shape[1]
    for pair in range(len(knots)):
        knot, share = knots[pair], shares[pair]
        above = min(knot + 1, len(at_knots) - 1)
        score = _log_odds(evidence[pair], at_knots[knot], at_knots[above], share)
        small = math.exp(-abs(score))
        curve = weights[pair] * small / (1 + small) ** 2
        for term in range(num_terms):
            part = curve * evidence[pair, term]
            for other in range(num_terms):
                entry = part * evidence[pair, other]
                own[knot, term, other] += (1 - share) ** 2 * entry
                own[above, term, other] += share**2 * entry
                next_one[knot, term, other] += (1 - share) * share * entry


@compiled
def _add_up(evidence, knots, shares, is_true, weights, at_knots, gradient):
    total = 0.0
    num_terms = evidence.shape[1]
    for pair in range(len(knots)):
        knot, share = knots[pair], shares[pair]
        above = min(knot + 1, len(at_knots) - 1)
        score = _log_odds(evidence[pair], at_knots[knot], at_knots[above], share)
        # p = sigmoid(s); the loss is -ln p of a true pair, -ln (1 - p) of another
        small = math.exp(-abs(score))
        p = 1 / (1 + small) if score >= 0 else small / (1 + small)
        signed = -score if is_true[pair] else score
        total += weights[pair] * (max(signed, 0.0) + math.log1p(small))
        residual = weights[pair] * (p - is_true[pair])
        for term in range(num_terms):
            part = residual * evidence[pair, term]
            gradient[knot, term] += (1 - share) * part
            gradient[above, term] += share * part
    return total
