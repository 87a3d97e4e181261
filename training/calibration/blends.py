"""Fitting what scorers say together, by how often a label was seen in training.

One logistic regression for all pairs of documents and labels: its weights are functions of the
label's number of training documents, given at a few knots (see `RarityBlend`). Weights that don't
know how rare a label is either distrust what finds labels without documents, or trust it for
frequent ones; weights of single labels overfit. The pairs stand for all pairs of the split, but
those that no scorer lists count less: the fit would else care more for what never ranks high than
for the order of the labels that do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from longtail.models.bundle.manifest import Calibration, RarityBlend
from longtail.models.native.library import BOOL, F64, I64, INT, Converter, function
from longtail.models.scorers.blending import LEAST_LOG_ODDS, below_floor, knot_shares
from longtail.models.scorers.calibration import log_odds_of, rises
from longtail.training.calibration.fit import rounded
from longtail.training.calibration.minimum import minimum
from longtail.training.calibration.scored_pairs import ScoredPairs

COUNTS = (0, 1, 3, 10, 30, 100, 1000)
"""Training documents at the knots."""
_SMOOTHNESS = 4.0
"""Weight of the squared difference of neighbouring knots, in true pairs."""
_RIDGE = 0.5
"""Weight of the squared distance from equal shares of one, in true pairs."""
_BENDS = (-6.0, -4.0, -2.0, 0.0, 2.0)
"""Nats of the sum, where the curve may bend."""
_CURVE_SMOOTHNESS = 20.0
_CURVE_RIDGE = 2.0
"""As `_SMOOTHNESS` and `_RIDGE`, of the curve, whose slopes are drawn towards 1."""
_LEAST_SLOPE = 0.05
"""Least slope of the curve, which rises everywhere."""
TAIL = 0.1
"""Times ln(1 + n) is taken off the log-odds of labels with n training documents.

A ranking by probability finds few rare labels; so little of a logit adjustment (Menon et al. 2021)
costs no precision on any corpus tried, and finds more of them."""
_LEAST_BELOW = 100
"""Training documents of labels for which scores below a scorer's floor count; of rarer labels such
scores say little, and counting them orders the first ten of such labels worse. They count for
labels without documents, which few scorers know, so that these labels keep their order."""
_OTHERS = 0.1
"""Share that a wrong pair which no scorer lists counts of the pairs that it stands for.

Less ranks the first ten labels better still, but fills the places from 20 on with labels that no
scorer lists."""
_NEVER = 1e9
"""Ridge that keeps a coefficient where it starts."""

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


@dataclass(frozen=True, slots=True)
class _Problem:
    """What the regression sees: a row for each pair.

    Attributes:
        evidence: 1, then the log-odds of each scorer.
        knots: The last knot at or below each pair's label.
        shares: Weight of the next knot in what holds for the label; the rest is that knot's.
        is_true: Whether the label is right.
        weights: Pairs that each stands for.
        num_knots: Number of knots of all labels; at least 1.
        start: The coefficients that those of every knot are drawn towards.
        smoothness: Weight of the squared difference of neighbouring knots.
        ridge: Weight of the squared distance of each coefficient from `start`.
    """

    evidence: Float64[np.ndarray, "pair term"]
    knots: Int64[np.ndarray, pair]
    shares: Float64[np.ndarray, pair]
    is_true: Bool[np.ndarray, pair]
    weights: Float64[np.ndarray, pair]
    num_knots: int
    start: Float64[np.ndarray, term]
    smoothness: float
    ridge: Float64[np.ndarray, "knot term"]

    def loss(
        self, flat: Float64[np.ndarray, parameter]
    ) -> tuple[float, Float64[np.ndarray, parameter]]:
        """Return the penalised negative log-likelihood in nats, and its gradient.

        Args:
            flat: The coefficients of each knot, one knot after the other.
        """
        at_knots = flat.reshape(self.num_knots, -1)  # (knot, term)
        value, gradient = _loss_and_gradient(
            self.evidence, self.knots, self.shares, self.is_true, self.weights, at_knots
        )
        steps = np.diff(at_knots, axis=0)
        distance = at_knots - self.start
        value += self.smoothness * float((steps**2).sum())
        value += float((self.ridge * distance**2).sum())
        gradient[:-1] -= 2 * self.smoothness * steps
        gradient[1:] += 2 * self.smoothness * steps
        gradient += 2 * self.ridge * distance
        return value, gradient.ravel()

    def curvature(
        self, flat: Float64[np.ndarray, parameter]
    ) -> Float64[np.ndarray, "parameter parameter"]:
        """Return the second derivatives of the loss."""
        at_knots = flat.reshape(self.num_knots, -1)
        num_terms = at_knots.shape[1]
        matrix = _loss_curvature(
            self.evidence, self.knots, self.shares, self.weights, at_knots
        )  # (knot, term, knot, term)
        steps = np.diff(np.eye(self.num_knots), axis=0)
        smooth = 2 * self.smoothness * steps.T @ steps
        penalty = np.einsum("ij,tu->itju", smooth, np.eye(num_terms))
        penalty += np.diag(2 * self.ridge.ravel()).reshape(penalty.shape)
        found: Float64[np.ndarray, "parameter parameter"] = matrix + penalty
        return found.reshape(len(flat), len(flat))

    def solved(self, least: float) -> Float64[np.ndarray, "knot term"]:
        """Return the coefficients of the smallest loss; all but the first at least so large."""
        of_knot = [-np.inf, *[least] * (len(self.start) - 1)]
        found = minimum(
            self.loss, self.curvature, np.tile(self.start, self.num_knots),
            np.tile(of_knot, self.num_knots), tolerance=1e-12,
        )  # fmt: skip
        return np.array([rounded(value) for value in found]).reshape(self.num_knots, -1)

    def sums(self, at_knots: Float64[np.ndarray, "knot term"]) -> Float64[np.ndarray, pair]:
        """Return the blended evidence of each pair."""
        above = np.minimum(self.knots + 1, self.num_knots - 1)
        own = np.einsum("pt,pt->p", self.evidence, at_knots[self.knots])
        next_one = np.einsum("pt,pt->p", self.evidence, at_knots[above])
        found: Float64[np.ndarray, pair] = own + self.shares * (next_one - own)
        return found


def fit_blend(
    pairs: ScoredPairs,
    members: Sequence[str],
    calibrations: Mapping[str, Calibration],
    training_counts: Int64[np.ndarray, label],
    *,
    unseen: ScoredPairs | None = None,
    counts: Sequence[int] = COUNTS,
) -> RarityBlend:
    """Fit the weights of scorers by how often a label was seen, then the curve of their sum.

    Scorers that agree are too sure together, and one that is alone is right more often than the sum
    says: the more so, the rarer the label. Both losses are convex, and weights are kept at 0 or
    above, so there is one answer.

    Args:
        pairs: Pairs of the dev split.
        members: Scorers; at least one.
        calibrations: Calibration of each member.
        training_counts: Training documents of each label.
        unseen: Pairs of the split again, scored as if their labels had no training document.
        counts: Training documents at the knots, rising from 0; those far above all are left out.
    """
    members = sorted(members)  # as a manifest has them: sums in this order are the same to the bit
    looked_at = [_looked_at(pairs, members, training_counts)]
    if unseen is not None:
        looked_at.append(_looked_at(unseen, members, np.zeros_like(training_counts)))
    scores, is_true, weights, seen = (
        np.concatenate(each, axis=-1) for each in zip(*looked_at, strict=True)
    )
    floors = {
        name: _floor(own, is_true, weights) for name, own in zip(members, scores, strict=True)
    }
    log_odds = [log_odds_of(calibrations[x], own) for x, own in zip(members, scores, strict=True)]
    limits = [floors[name] for name in members]
    above = [np.maximum(own, floor) for own, floor in zip(log_odds, limits, strict=True)]
    below = [below_floor(own, floor) for own, floor in zip(log_odds, limits, strict=True)]
    most = int(training_counts.max(initial=0))
    counts = tuple(x for i, x in enumerate(counts) if i == 0 or counts[i - 1] < most)
    knots, shares = _places(seen, counts)
    num = len(members)
    ridge = np.full((len(counts), 1 + 2 * num), _RIDGE)
    ridge[:, 0] = 0  # the intercept is free
    ridge[(np.array(counts) > 0) & (np.array(counts) < _LEAST_BELOW), 1 + num :] = _NEVER
    problem = _Problem(
        evidence=np.column_stack([np.ones(len(weights)), *above, *below]),
        knots=knots,
        shares=shares,
        is_true=is_true,
        weights=weights,
        num_knots=len(counts),
        start=np.array([0.0, *[1 / num] * num, *[0.0] * num]),
        smoothness=_SMOOTHNESS,
        ridge=ridge,
    )
    at_knots = problem.solved(0.0)
    at_knots[ridge == _NEVER] = 0
    risen = rises(problem.sums(at_knots), _BENDS)
    curve = replace(
        problem,
        evidence=np.column_stack([np.ones(len(risen)), risen]),
        start=np.array([_BENDS[0], *[1.0] * risen.shape[1]]),
        smoothness=_CURVE_SMOOTHNESS,
        ridge=np.tile([0.0, *[_CURVE_RIDGE] * risen.shape[1]], (len(counts), 1)),
    ).solved(_LEAST_SLOPE)
    levels = curve[:, 0] - TAIL * np.log1p(counts)
    return RarityBlend(
        counts=counts,
        intercepts=tuple(at_knots[:, 0].tolist()),
        weights={name: tuple(at_knots[:, i].tolist()) for i, name in enumerate(members, 1)},
        floors=floors,
        below={name: tuple(at_knots[:, i].tolist()) for i, name in enumerate(members, 1 + num)},
        curve_bends=_BENDS,
        curve_levels=tuple(rounded(level) for level in levels),
        curve_slopes=tuple(tuple(row) for row in curve[:, 1:].T.tolist()),
    )


def _looked_at(
    pairs: ScoredPairs, members: Sequence[str], training_counts: Int64[np.ndarray, label]
) -> tuple[
    Float32[np.ndarray, "member pair"],
    Bool[np.ndarray, pair],
    Float64[np.ndarray, pair],
    Int64[np.ndarray, pair],
]:
    """Return scores, truth, weight and training documents of the pairs that somebody scores."""
    is_scored = np.any([pairs.scores[name] > -np.inf for name in members], axis=0)
    is_used = (pairs.weights > 0) & is_scored
    counted = np.where(pairs.is_best | pairs.is_true, 1, _OTHERS)
    return (
        np.stack([pairs.scores[name][is_used] for name in members]),
        pairs.is_true[is_used],
        counted[is_used] * pairs.weights[is_used].astype(np.float64),
        training_counts[pairs.labels[is_used]],
    )


def _places(
    training_counts: Int64[np.ndarray, pair], counts: Sequence[int]
) -> tuple[Int64[np.ndarray, pair], Float64[np.ndarray, pair]]:
    """Return the knot below each label, and the share of the next one (see `knot_shares`)."""
    shares = knot_shares(training_counts, counts)  # (pair, knot): at most two are above 0
    knots = (shares > 0).argmax(axis=1).astype(np.int64)
    return knots, 1 - np.take_along_axis(shares, knots[:, None], axis=1)[:, 0]


def _floor(
    scores: np.ndarray, is_true: Bool[np.ndarray, pair], weights: Float64[np.ndarray, pair]
) -> float:
    """Return the log-odds that a label is right which a scorer gives no score.

    One pair more than there are is as often right as all are; where the scorer gives every label a
    score, the floor takes no evidence off.
    """
    is_missing = np.isneginf(scores)
    if not is_missing.any():
        return LEAST_LOG_ODDS
    share = float(weights[is_true].sum() / weights.sum())
    num_true = float(weights[is_missing & is_true].sum()) + share
    num_false = float(weights[is_missing & ~is_true].sum()) + 1 - share
    if not num_true:
        return LEAST_LOG_ODDS
    if not num_false:  # every document carries every label
        return -LEAST_LOG_ODDS
    return rounded(max(LEAST_LOG_ODDS, float(np.log(num_true) - np.log(num_false))))


def in_words(blend: RarityBlend) -> str:
    """Return the weights of a blend, for a log."""
    return f"weights at {' '.join(map(str, blend.counts))} training documents: " + "; ".join(
        f"{name} {' '.join(f'{value:.2f}' for value in values)}"
        for name, values in blend.weights.items()
    )


def _loss_and_gradient(
    evidence: Float64[np.ndarray, "pair term"],
    knots: Int64[np.ndarray, pair],
    shares: Float64[np.ndarray, pair],
    is_true: Bool[np.ndarray, pair],
    weights: Float64[np.ndarray, pair],
    at_knots: Float64[np.ndarray, "knot term"],
) -> tuple[float, Float64[np.ndarray, "knot term"]]:
    """Return the weighted log loss of pairs in nats, and its gradient.

    Args:
        evidence: Evidence of each pair; the first term is 1.
        knots: The knot at or below each pair's label.
        shares: Weight of the next knot in the label's coefficients.
        is_true: Whether the label is right.
        weights: The pairs' weights.
        at_knots: The coefficients.
    """
    gradient = np.zeros_like(at_knots)
    value = np.zeros(1)
    pairs = (evidence, knots, shares, weights, at_knots, len(knots), *at_knots.shape)
    _add_up(*pairs, is_true, gradient, value)
    return float(value[0]), gradient


def _loss_curvature(
    evidence: Float64[np.ndarray, "pair term"],
    knots: Int64[np.ndarray, pair],
    shares: Float64[np.ndarray, pair],
    weights: Float64[np.ndarray, pair],
    at_knots: Float64[np.ndarray, "knot term"],
) -> Float64[np.ndarray, "knot term knot term"]:
    """Return the second derivatives of the log loss (see `_loss_and_gradient`)."""
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
