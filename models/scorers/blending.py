"""Blends of scorers: what several scorers together say of a label, as log-odds.

A blend rises with the score of each of its scorers, so
`longtail.models.ranking.threshold_algorithm` ranks by it exactly. There are two: the mean of
probabilities (DEPL+c), and the one that knows how rare a label is, whose weights depend on the
label's number of training documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.special import expit, logit

from longtail.models.bundle.manifest import Calibration, RarityBlend
from longtail.models.labels.selection import Selection
from longtail.models.native.library import CSR, F32, F64, I64, INT, Csr, RecordOf, function
from longtail.models.scorers.calibration import log_odds_of, rises
from longtail.models.scorers.sparse import SparseSource

_CLOSEST_TO_ZERO, _CLOSEST_TO_ONE = 1e-300, 1 - 2.0**-53
"""Bounds of a mean of probabilities, so that its log-odds are finite."""
LEAST_LOG_ODDS = -14.0
"""Nats; lower log-odds of a member count as these, as in `blend.c`."""
_SLACK = 2.0**-44
"""By this share a bound, rounded as it is, may be too small."""


@runtime_checkable  # the test run checks annotations by isinstance
class Blend(Protocol):
    """Makes log-odds of the scores that its members give to labels."""

    @property
    def members(self) -> tuple[str, ...]:
        """The scorers that take part."""
        ...

    @property
    def log_priors(self) -> Float32[np.ndarray, label]:
        """Log pi of each label, in nats; what the tail dial takes off."""
        ...

    def log_odds(
        self, scores: Float32[np.ndarray, "member row m"], labels: Int64[np.ndarray, "#row m"]
    ) -> Float64[np.ndarray, "row m"]:
        """Return the blended log-odds, in nats.

        Args:
            scores: Scores of each member; -inf for a label that it can't score.
            labels: Whose scores they are.
        """
        ...

    def most(self, scores: Float32[np.ndarray, "member row"]) -> Float64[np.ndarray, row]:
        """Return an upper bound of any label's log-odds, given upper bounds of the scores."""
        ...


class MeanBlend:
    """The mean of the sigmoids of several scorers' scores: of two, DEPL+c (DEPL, Eq. 4)."""

    def __init__(self, members: Sequence[str], log_priors: Float32[np.ndarray, label]) -> None:
        """Note who takes part."""
        self.members = tuple(members)
        self.log_priors = log_priors

    def log_odds(
        self, scores: Float32[np.ndarray, "member row m"], labels: Int64[np.ndarray, "#row m"]
    ) -> Float64[np.ndarray, "row m"]:
        """Return logit(mean_i sigmoid(s_i)), with sigmoid(-inf) = 0."""
        del labels  # all alike
        return self._blended(scores, 1.0)

    def most(self, scores: Float32[np.ndarray, "member row"]) -> Float64[np.ndarray, row]:
        """Return the blend of these scores, a little raised."""
        return self._blended(scores, 1 + _SLACK)

    def _blended(
        self, scores: Float32[np.ndarray, "member *rest"], factor: float
    ) -> Float64[np.ndarray, "*rest"]:
        mean = np.zeros(scores.shape[1:])
        for own in scores:
            mean += expit(own.astype(np.float64)) / len(self.members)
        found: Float64[np.ndarray, "*rest"] = logit(
            np.clip(mean * factor, _CLOSEST_TO_ZERO, _CLOSEST_TO_ONE)
        )
        return found


class _Arrays(NamedTuple):
    """What a fitted blend weighs and adds: `blend` of `blend.c`."""

    rows: Float64[np.ndarray, "row term"]
    row_of: Int64[np.ndarray, label]
    log_priors: Float32[np.ndarray, label]
    intercepts: Float64[np.ndarray, member]
    floors: Float64[np.ndarray, member]
    knots: Float64[np.ndarray, knot]
    slopes: Float64[np.ndarray, piece]
    bends: Float64[np.ndarray, bend]
    num_knots: Int64[np.ndarray, member]
    num_members: int
    num_bends: int
    num_terms: int
    num_counts: int


BLEND = RecordOf(
    "blend", rows=F64["num_counts num_terms"], row_of=I64["label"], log_priors=F32["label"],
    intercepts=F64["num_members"], floors=F64["num_members"], knots=F64["knot"],
    slopes=F64["piece"], bends=F64["num_bends"], num_knots=I64["num_members"], num_members=INT,
    num_bends=INT, num_terms=INT, num_counts=INT,
)  # fmt: skip


class _Classifiers(NamedTuple):
    """The sparse member: `classifiers` of `blend.c`."""

    weights: Csr
    bias: Float32[np.ndarray, covered]
    labels: Int64[np.ndarray, covered]
    at_floor: Float32[np.ndarray, covered]
    order: Int64[np.ndarray, ordered]
    num_covered: int
    num_ordered: int
    member: int


CLASSIFIERS = RecordOf(
    "classifiers", weights=CSR, bias=F32["num_covered"], labels=I64["num_covered"],
    at_floor=F32["num_covered"], order=I64["num_ordered"], num_covered=INT, num_ordered=INT,
    member=INT,
)  # fmt: skip
_log_odds = function(
    "blend_log_odds", of=BLEND, scores=F32["member num_rows m"], labels=I64["label_rows m"],
    label_rows=INT, num_rows=INT, m=INT, found=F64.out["num_rows m"],
)  # fmt: skip


class FittedBlend:
    """The blend whose weights depend on the label's training documents (see `RarityBlend`)."""

    def __init__(
        self,
        fitted: RarityBlend,
        calibrations: Sequence[Calibration],
        training_counts: Int64[np.ndarray, label],
        log_priors: Float32[np.ndarray, label],
    ) -> None:
        """Look up the weights of every label."""
        self.members = tuple(fitted.weights)
        self.log_priors = log_priors
        self._calibrations = tuple(calibrations)
        self._floors = tuple(fitted.floors[name] for name in self.members)
        none = (0.0,) * len(fitted.counts)
        below = [fitted.below.get(name, none) for name in self.members]
        curve = [fitted.curve_levels, *fitted.curve_slopes] if fitted.curve_bends else []
        # (term, knot), the first term being the intercept, and (distinct count, term)
        self._at_knots = np.array(
            [fitted.intercepts, *fitted.weights.values(), *below, *curve], dtype=np.float64
        )
        self._bends = fitted.curve_bends
        distinct, row_of = np.unique(training_counts, return_inverse=True)
        self._row_of = row_of.astype(np.int64)
        shares = knot_shares(distinct, fitted.counts)
        # The last bits of a matrix product depend on its number of rows: a part of the labels
        # is to get the same weights.
        self._rows = np.zeros((len(shares), len(self._at_knots)))
        for own, values in zip(shares.T, self._at_knots.T, strict=True):
            self._rows += own[:, None] * values
        self._at_knots = self._at_knots[:, shares.any(axis=0)]
        self._classifiers: dict[tuple[int, ...], Structure] = {}
        self.arrays = BLEND(
            _Arrays(
                self._rows,
                self._row_of,
                log_priors,
                np.array([each.intercept for each in calibrations], dtype=np.float64),
                np.array(self._floors, dtype=np.float64),
                np.array([x for each in calibrations for x in each.knots], dtype=np.float64),
                np.array([x for each in calibrations for x in each.slopes], dtype=np.float64),
                np.array(fitted.curve_bends, dtype=np.float64),
                np.array([len(each.knots) for each in calibrations], dtype=np.int64),
                len(calibrations),
                len(fitted.curve_bends),
                len(self._at_knots),
                len(self._rows),
            )
        )

    def log_odds(
        self, scores: Float32[np.ndarray, "member row m"], labels: Int64[np.ndarray, "#row m"]
    ) -> Float64[np.ndarray, "row m"]:
        """Return the scores of `RarityBlend`."""
        num_rows, m = scores.shape[1:]
        total = np.empty((num_rows, m))
        scores, labels = np.ascontiguousarray(scores), np.ascontiguousarray(labels)
        _log_odds(self.arrays, scores, labels, len(labels), num_rows, m, total)
        return total

    def most(self, scores: Float32[np.ndarray, "member row"]) -> Float64[np.ndarray, row]:
        """Return what the blend of these scores is at most between any two knots, a little raised.

        Between two knots the sum and, of one sum, the curve are linear in ln(1 + n): both are
        largest at a knot, so the curves of the two at the larger of their sums bound the blend.
        """
        evidence = self._evidence(scores)  # (member, row)
        num_members = len(self.members)
        intercepts, weights = self._at_knots[0][:, None], self._at_knots[1 : 1 + num_members].T
        sums = intercepts + weights @ evidence  # (knot, row)
        sums += _SLACK * (np.abs(intercepts) + weights @ np.abs(evidence))
        if not self._bends:
            most: Float64[np.ndarray, row] = sums.max(axis=0)
            return most
        larger = sums.copy()
        larger[1:] = np.maximum(larger[1:], sums[:-1])
        larger[:-1] = np.maximum(larger[:-1], sums[1:])
        level, *slopes = self._at_knots[1 + 2 * num_members :]
        pieces = np.array(slopes)[..., None] * np.moveaxis(rises(larger, self._bends), -1, 0)
        bent = level[:, None] + pieces.sum(axis=0)
        found: Float64[np.ndarray, row] = (
            bent + _SLACK * (np.abs(level)[:, None] + np.abs(pieces).sum(axis=0))
        ).max(axis=0)
        return found

    def classifiers(self, sparse: SparseSource, member: int, *, is_ordered: bool) -> Structure:
        """Return the sparse member as `blend_rank` takes it; those of one model are kept.

        Args:
            sparse: Its source.
            member: Its place among the members.
            is_ordered: Whether labels that no member speaks for are scored in the order of that;
                else all are scored.
        """
        arrays = (sparse.weights, sparse.bias, sparse.labels)
        key = (*map(id, arrays), member, is_ordered)
        found = self._classifiers.get(key)
        if found is None:
            at_floor, order = sparse.bias, np.empty(0, dtype=np.int64)
            if is_ordered:
                nothing = np.full((len(self.members), 1, len(at_floor)), -np.inf, dtype=np.float32)
                at_floor = self.log_odds(nothing, sparse.labels[None])[0].astype(np.float32)
                order = np.argsort(-at_floor, kind="stable")
            sizes = (len(at_floor), len(order))
            found = CLASSIFIERS(_Classifiers(*arrays, at_floor, order, *sizes, member))
            others = self._classifiers if len(self._classifiers) < 2 else {}
            self._classifiers = {**others, key: found}
        return found

    def evidence(
        self, scores: Float32[np.ndarray, "member row m"], labels: Int64[np.ndarray, "#row m"]
    ) -> Float64[np.ndarray, "member row m"]:
        """Return what each member adds to the sum, in nats."""
        num_members = len(self.members)
        weights, below = self._terms(labels)[1 : 1 + 2 * num_members].reshape(
            2, num_members, *labels.shape
        )
        found: Float64[np.ndarray, "member row m"] = weights * self._evidence(scores)
        found += below * self._below(scores)
        return found

    def weights(self, labels: Int64[np.ndarray, "row m"]) -> Float64[np.ndarray, "member row m"]:
        """Return w_i(n) of each member for labels."""
        found: Float64[np.ndarray, "member row m"] = self._terms(labels)[1 : 1 + len(self.members)]
        return found

    def _terms(self, labels: Int64[np.ndarray, "row m"]) -> Float64[np.ndarray, "term row m"]:
        return np.ascontiguousarray(np.moveaxis(self._rows[self._row_of[labels]], -1, 0))

    def _evidence(
        self, scores: Float32[np.ndarray, "member *rest"]
    ) -> Float64[np.ndarray, "member *rest"]:
        """Return max(g_i, f_i) of each member's scores."""
        parts = zip(self._calibrations, scores, self._floors, strict=True)
        return np.stack([np.maximum(log_odds_of(each, own), floor) for each, own, floor in parts])

    def _below(
        self, scores: Float32[np.ndarray, "member *rest"]
    ) -> Float64[np.ndarray, "member *rest"]:
        """Return min(g_i - f_i, 0) of each member's scores; 0 where there is none."""
        parts = zip(self._calibrations, scores, self._floors, strict=True)
        return np.stack([below_floor(log_odds_of(each, own), floor) for each, own, floor in parts])


def below_floor(
    log_odds: Float64[np.ndarray, "*shape"], floor: float
) -> Float64[np.ndarray, "*shape"]:
    """Return how far log-odds are below a floor, at most 0; 0 of -inf, which stands for none."""
    lower = np.where(np.isneginf(log_odds), floor, np.maximum(log_odds, LEAST_LOG_ODDS))
    found: Float64[np.ndarray, "*shape"] = np.minimum(lower - floor, 0)
    return found


def knot_shares(
    training_counts: Int64[np.ndarray, label], counts: Sequence[int]
) -> Float64[np.ndarray, "label knot"]:
    """Return the share of each knot in what holds for a label: hat functions of ln(1 + n).

    Args:
        training_counts: Training documents n of each label.
        counts: n at each knot, rising.
    """
    knots, places = np.log1p(counts), np.log1p(training_counts)
    unit = np.eye(len(knots))
    return np.stack([np.interp(places, knots, row) for row in unit], axis=1)


@dataclass(frozen=True, slots=True)
class DialledBlend:
    """A blend with a tail dial: a `Combination` of the scores of its members.

    Its score is the blend's log-odds less tau times log pi_y.

    Attributes:
        blend: What makes log-odds of scores.
        tail_dial: tau, at least 0.
        rarest_first: The labels that may be returned, by rising pi_y.
    """

    blend: Blend
    tail_dial: float
    rarest_first: Int64[np.ndarray, candidate]

    @classmethod
    def of(cls, blend: Blend, tail_dial: float) -> DialledBlend:
        """Return the blend as it is ranked by."""
        order = np.argsort(blend.log_priors, kind="stable") if tail_dial else np.empty(0)
        return cls(blend, tail_dial, order.astype(np.int64))

    def combine(
        self, scores: Float32[np.ndarray, "member row m"], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the blended scores, rounded once; -inf for labels that no member can score."""
        blended = self.blend.log_odds(scores, labels)
        if self.tail_dial:
            blended = blended - self.tail_dial * self.blend.log_priors[labels].astype(np.float64)
        is_nobodys = (scores == -np.inf).all(axis=0)
        return np.where(is_nobodys, -np.inf, blended).astype(np.float32)

    def among(self, selection: Selection) -> DialledBlend:
        """Return the same where only the selected labels may be returned."""
        selected = self.rarest_first[selection.is_selected[self.rarest_first]]
        return replace(self, rarest_first=selected)

    def leading(self, depth: int) -> Int64[np.ndarray, label]:
        """Return the rarest labels, which the tail dial raises most."""
        return self.rarest_first[:depth]

    def bound(
        self, frontiers: Float32[np.ndarray, "member row"], depth: int
    ) -> Float32[np.ndarray, row]:
        """Return the blend of the frontiers, raised as the rarest label is that is not named.

        It is a little more than that, as arithmetic in float64 need not be monotone to the bit.
        """
        bound = self.blend.most(frontiers)
        if self.tail_dial:
            rarest = self.rarest_first[:depth][-1:]  # as rare as any not named, or rarer
            rise = -self.tail_dial * self.blend.log_priors[rarest].astype(np.float64)
            bound = bound + rise + _SLACK * np.abs(rise)
        is_nobodys = (frontiers == -np.inf).all(axis=0)
        raised = np.nextafter(bound.astype(np.float32), np.float32(np.inf))
        return np.where(is_nobodys, np.float32(-np.inf), raised)
