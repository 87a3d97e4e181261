"""Blends of scorers: weighted means of the probabilities that they give, ranked exactly.

A blend rises with each of its sorted sources, so the Threshold Algorithm (Fagin, Lotem & Naor 2003,
section 4) gives its exact top k. A label that a scorer can't score (one without training documents
has no row in a classifier) has probability 0 from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64
from scipy.special import logit

from models.bundle.manifest import Calibration
from models.labels.filters import Selection
from models.ranking.filtered import SelectedSource, scores_all, total_scores
from models.ranking.top_k import Ranking, Source, nothing, top_of_candidates, without_repeats
from models.scorers.calibration import IDENTITY, probabilities_of

Sources = Sequence[Source]
"""Those of one scorer for one batch of queries; the sum of their scores is the scorer's."""

_SCORE_ALL_UP_TO = 1024
"""Labels; see tests/bench/blended_ranking.py."""
_FIRST_DEPTH = 64
"""Labels asked of every source in the first round, at least."""
_MOST_SCORES = 2**18
"""Held at a time, of each scorer, where all labels are scored."""
_CLOSEST_TO_ZERO, _CLOSEST_TO_ONE = 1e-300, 1 - 2.0**-53
"""Of a blend; so its log-odds are finite."""
_SLACK = 2.0**-48
"""By this share a mean of probabilities, rounded as it is, may be too small."""


@dataclass(frozen=True, slots=True)
class Member:
    """A scorer in a blend.

    Attributes:
        name: The scorer.
        weight: Above 0.
        calibration: What makes log-odds of its scores.
    """

    name: str
    weight: float
    calibration: Calibration


class Blend:
    """A weighted mean of several scorers' probabilities.

    Its score is the log-odds of this mean, less tau times log pi_y with a tail dial tau.
    """

    def __init__(self, members: Sequence[Member], log_priors: Float32[np.ndarray, label]) -> None:
        """Note who takes part.

        Args:
            members: At least one; their weights sum to 1.
            log_priors: log pi of each label, in nats.
        """
        assert members and all(member.weight > 0 for member in members)
        self.members = tuple(members)
        self._log_priors = log_priors.astype(np.float64)
        self._rarest_first = np.argsort(log_priors, kind="stable").astype(np.int64, copy=False)

    def rank(
        self,
        sources: Sequence[Sources],
        k: int,
        tail_dial: float = 0.0,
        selection: Selection | None = None,
    ) -> Ranking:
        """Return the k labels of the largest blended scores, exactly; ties by the smaller index.

        Few labels are all scored. Else in rounds: every source names its best labels, each named
        label is scored on all sources, and a query is done when its k-th score is above the blend
        of the sources' last scores, which no label not yet named can exceed. The stop is strict, so
        that no equal label of a smaller index is missed.

        Args:
            sources: Of each member, over the same queries.
            k: Labels wanted a query, at least 1.
            tail_dial: tau, at least 0.
            selection: Whose labels may be found; None: all.
        """
        if selection is not None and scores_all(selection):
            return self._rank_given(sources, k, tail_dial, selection.labels)
        if selection is None and len(self._log_priors) <= _SCORE_ALL_UP_TO:
            return self._rank_given(sources, k, tail_dial, np.arange(len(self._log_priors)))
        rarest = self._rarest_first
        if selection is not None:
            sources = [[SelectedSource(each, selection) for each in parts] for parts in sources]
            rarest = rarest[selection.is_selected[rarest]]
        rows = np.arange(sources[0][0].num_queries, dtype=np.int64)
        result = nothing(len(rows), k)
        depth = max(k, _FIRST_DEPTH)
        while len(rows):
            best, bound = self._round(sources, rows, k, depth, tail_dial, rarest)
            is_certified = (best.scores[:, -1] > bound) | np.isneginf(bound)
            done = rows[is_certified]
            result.labels[done] = best.labels[is_certified]
            result.scores[done] = best.scores[is_certified]
            rows = rows[~is_certified]
            depth *= 4
        return result

    def score(
        self,
        sources: Sequence[Sources],
        rows: Int64[np.ndarray, row],
        labels: Int64[np.ndarray, "row m"],
        tail_dial: float = 0.0,
    ) -> Float32[np.ndarray, "row m"]:
        """Return the blended scores of given labels; -inf for those that no member can score."""
        scores = np.stack([total_scores(parts, rows, labels) for parts in sources])
        return self.blended(scores, labels, tail_dial)

    def blended(
        self,
        scores: Float32[np.ndarray, "member row m"],
        labels: Int64[np.ndarray, "#row m"],
        tail_dial: float = 0.0,
        slack: float = 0.0,
    ) -> Float32[np.ndarray, "row m"]:
        """Return the blended scores that these scores of the members make, rounded once.

        Args:
            scores: Of each member; -inf, of a label that it can't score, counts as probability 0.
            labels: Whose scores they are.
            tail_dial: tau, at least 0.
            slack: By this share the means are raised.
        """
        mean = np.zeros(scores.shape[1:])
        for member, some in zip(self.members, scores, strict=True):
            mean += member.weight * probabilities_of(member.calibration, some)
        blended = logit(np.clip(mean * (1 + slack), _CLOSEST_TO_ZERO, _CLOSEST_TO_ONE))
        if tail_dial:
            blended -= tail_dial * self._log_priors[labels]
        is_nobodys = (scores == -np.inf).all(axis=0)
        return np.where(is_nobodys, -np.inf, blended).astype(np.float32)

    def _rank_given(
        self,
        sources: Sequence[Sources],
        k: int,
        tail_dial: float,
        labels: Int64[np.ndarray, given],
    ) -> Ranking:
        """Return the best of some labels, all of which are scored, a part of the queries a time."""
        rows = np.arange(sources[0][0].num_queries, dtype=np.int64)
        best = nothing(len(rows), k)
        for some in np.array_split(rows, len(rows) * len(labels) // _MOST_SCORES + 1):
            given = np.tile(labels, (len(some), 1))
            found = top_of_candidates(given, self.score(sources, some, given, tail_dial), k)
            best.labels[some], best.scores[some] = found.labels, found.scores
        return best

    def _round(
        self,
        sources: Sequence[Sources],
        rows: Int64[np.ndarray, row],
        k: int,
        depth: int,
        tail_dial: float,
        rarest: Int64[np.ndarray, selected],
    ) -> tuple[Ranking, Float32[np.ndarray, row]]:
        """Return the k best of all labels named, and what no other label's score can be above.

        A scorer that has named all that it knows gives a label not yet named nothing; where none is
        left that knows more, the bound is -inf. Else it is a little more than the blend, as an
        exponential in float64 need not be monotone to the bit.
        """
        named, last = [], []
        for parts in sources:
            tops = [source.top(rows, min(depth, source.num_labels)) for source in parts]
            named += [top.labels for top in tops]
            frontier = np.sum([top.scores[:, -1] for top in tops], axis=0, dtype=np.float32)
            is_exhausted = depth >= min(source.num_labels for source in parts)
            last.append(np.full_like(frontier, -np.inf) if is_exhausted else frontier)
        if tail_dial:
            named.append(np.tile(rarest[:depth], (len(rows), 1)))
        labels = without_repeats(np.concatenate(named, axis=1))
        best = top_of_candidates(labels, self.score(sources, rows, labels, tail_dial), k)
        next_rarest = rarest[:depth][-1:, None]
        bound = self.blended(np.stack(last)[:, :, None], next_rarest, tail_dial, _SLACK)[:, 0]
        return best, np.where(np.isneginf(bound), bound, np.nextafter(bound, np.float32(np.inf)))


def mean_of_sigmoids(names: Sequence[str], log_priors: Float32[np.ndarray, label]) -> Blend:
    """Return the blend of scorers as they are: of two, DEPL+c (DEPL, Eq. 4).

    Args:
        names: Scorers whose scores are log-odds.
        log_priors: Of all labels.
    """
    return Blend([Member(name, 1 / len(names), IDENTITY) for name in names], log_priors)


def weighted_blend(
    weights: Mapping[str, float],
    calibrations: Mapping[str, Calibration],
    log_priors: Float32[np.ndarray, label],
) -> Blend:
    """Return the blend of calibrated scorers; those of weight 0 take no part.

    Args:
        weights: Of each scorer.
        calibrations: Of each scorer.
        log_priors: Of all labels.
    """
    members = [
        Member(name, weight, calibrations[name]) for name, weight in weights.items() if weight
    ]
    return Blend(members, log_priors)
