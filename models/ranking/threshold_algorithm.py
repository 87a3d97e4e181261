"""The exact k best labels of one scorer or of several combined, by one algorithm for all.

A scorer is a sum of sources. Several scorers are combined by a function that rises with each of
their scores, so the Threshold Algorithm (Fagin, Lotem & Naor 2003, section 4) finds the best labels
and certifies them without looking at all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Int64

from longtail.models.labels.selection import Selection
from longtail.models.ranking.top_k import (
    MAX_SCORES,
    NO_LABEL,
    Ranking,
    Source,
    SourceOfLabels,
    nothing,
    row_parts,
    scores_all,
    top_of_candidates,
    without_repeats,
)

_SLACK = 64
"""Labels beyond twice those expected to be needed that are read at first."""


class SelectedSource:
    """A `Source` that has only the selected labels of another one."""

    def __init__(self, source: Source, selection: Selection) -> None:
        self._source = source
        self._is_selected = selection.is_selected
        self._num_left_out = len(selection.is_selected) - len(selection)
        self._num_selected = min(source.num_labels, len(selection))
        if isinstance(source, SourceOfLabels):
            self._num_selected = int(selection.is_selected[source.labels].sum())

    @property
    def num_queries(self) -> int:
        """Rows of the batch."""
        return self._source.num_queries

    @property
    def num_labels(self) -> int:
        """Upper bound of the labels that are selected and can be scored, at least 1."""
        return max(1, self._num_selected)

    def top(self, rows: Int64[np.ndarray, row], m: int) -> Ranking:
        """Return the m best selected labels of these queries (see `Source.top`).

        Of the other source's best, the selected ones are kept; where they are too few, four times
        as many are read.
        """
        best = nothing(len(rows), m)
        most, wanted = self._source.num_labels, min(m, self._num_selected)
        unfinished = np.arange(len(rows) if wanted else 0)
        # Labels not selected that are expected before the m-th selected one of the other source.
        expected = m * self._num_left_out // self.num_labels
        depth = min(most, m + min(self._num_left_out, 2 * expected + _SLACK))
        while len(unfinished):
            found = self._source.top(rows[unfinished], depth)  # (unfinished, depth)
            is_selected = (found.labels != NO_LABEL) & self._is_selected[found.labels]
            is_done = (is_selected.sum(axis=1) >= wanted) | (found.labels[:, -1] == NO_LABEL)
            is_done |= depth == most
            # A stable sort puts the selected ones in front and leaves both kinds in order.
            columns = np.argsort(~is_selected[is_done], axis=1, kind="stable")[:, :m]
            for out, values, nothing_there in (
                (best.labels, found.labels, NO_LABEL),
                (best.scores, found.scores, -np.inf),
            ):
                selected = np.where(is_selected, values, nothing_there)[is_done]
                out[unfinished[is_done], : columns.shape[1]] = np.take_along_axis(
                    selected, columns, axis=1
                )
            unfinished = unfinished[~is_done]
            depth = min(most, 4 * depth)
        return best

    def score(
        self, rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of given labels; -inf for labels that are not selected."""
        scores = self._source.score(rows, labels)
        scores[(labels == NO_LABEL) | ~self._is_selected[labels]] = -np.inf
        return scores


@runtime_checkable
class SelectableSource(Source, Protocol):
    """A `Source` that leaves out labels at less cost than `SelectedSource` does."""

    def among(self, selection: Selection) -> Source:
        """Return the source of the selected labels alone."""
        ...


def _selected(source: Source, selection: Selection) -> Source:
    if isinstance(source, SelectableSource):
        return source.among(selection)
    return SelectedSource(source, selection)


Sources: TypeAlias = Sequence[Source]
"""The sources of one scorer for a batch of queries; its score is their float32 sum, in order."""

_FIRST_DEPTH = 64
"""Labels that each source names in the first round, at least.

A round costs more than labels do.
"""


@runtime_checkable  # the test run checks annotations by isinstance
class Combination(Protocol):
    """Makes one score of a label of the scores that several scorers give to it.

    It rises with each of them, or stays. It may differ from label to label (by the label's share of
    the training pairs, or its frequency band); then `bound` is the largest over all labels that
    neither a scorer nor `leading` has named.
    """

    def combine(
        self, scores: Float32[np.ndarray, "scorer row m"], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of labels.

        Args:
            scores: Scores of each scorer; -inf for labels that it can't score.
            labels: Whose they are.
        """
        ...

    def among(self, selection: Selection) -> Combination:
        """Return the same where only the selected labels may be returned."""
        ...

    def leading(self, depth: int) -> Int64[np.ndarray, label]:
        """Return the `depth` labels that it raises most, whatever their scores; none if none.

        They are looked at whether or not a scorer names them, so that `bound` need not hold for
        them.
        """
        ...

    def bound(
        self, frontiers: Float32[np.ndarray, "scorer row"], depth: int
    ) -> Float32[np.ndarray, row]:
        """Return what the score of no label can exceed that was not named; -inf: there is none.

        Args:
            frontiers: What each scorer gives at most to labels that it has not named; -inf where it
                has named all that it knows.
            depth: Labels that were named by each.
        """
        ...


class Sum:
    """A scorer by itself: the sum of its sources, as it is."""

    def combine(
        self, scores: Float32[np.ndarray, "1 row m"], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of the only scorer."""
        del labels  # all alike
        only: Float32[np.ndarray, "row m"] = scores[0]
        return only

    def among(self, selection: Selection) -> Sum:
        """Return itself."""
        del selection
        return self

    def leading(self, depth: int) -> Int64[np.ndarray, label]:
        """Return nothing: all labels are summed alike."""
        del depth
        return np.empty(0, dtype=np.int64)

    def bound(
        self, frontiers: Float32[np.ndarray, "1 row"], depth: int
    ) -> Float32[np.ndarray, row]:
        """Return the scorer's frontier."""
        del depth
        only: Float32[np.ndarray, row] = frontiers[0]
        return only


SUM = Sum()


def rank(
    scorers: Sequence[Sources],
    combine: Combination,
    k: int,
    num_labels: int,
    selection: Selection | None = None,
) -> Ranking:
    """Return the k labels of the largest combined scores, exactly; ties by the smaller index.

    Few candidates are all scored. A single source has sorted access itself. Else the Threshold
    Algorithm, for a batch of queries: every source names its m best labels, each named label is
    scored on all sources, and a query is done when its k-th score exceeds the combination of the
    sources' m-th scores, which bounds every label not yet named; others go on with 4m.

    Args:
        scorers: For each scorer, at least one source over the same queries and the same label
            indices.
        combine: `SUM` for a single scorer.
        k: Number of labels per query, at least 1; fewer are found where fewer can be scored.
        num_labels: Labels of the catalogue.
        selection: Whose labels may be returned; None: all.
    """
    assert scorers and all(scorers) and k >= 1
    is_sorted = isinstance(combine, Sum) and len(scorers) == len(scorers[0]) == 1
    if selection is not None:
        if scores_all(len(selection), num_labels):
            return rank_given(scorers, combine, k, selection.labels)
        scorers = [[_selected(each, selection) for each in sources] for sources in scorers]
        combine = combine.among(selection)
    elif not is_sorted and scores_all(num_labels, num_labels):
        return rank_given(scorers, combine, k, np.arange(num_labels, dtype=np.int64))
    rows = np.arange(scorers[0][0].num_queries, dtype=np.int64)
    if is_sorted:
        return scorers[0][0].top(rows, k)
    return search(scorers, combine, k, rows)


def rank_given(
    scorers: Sequence[Sources], combine: Combination, k: int, labels: Int64[np.ndarray, given]
) -> Ranking:
    """Return the best of given labels, all of which are scored.

    Args:
        scorers: As for `rank`.
        combine: As for `rank`.
        k: At least 1.
        labels: Distinct.
    """
    rows = np.arange(scorers[0][0].num_queries, dtype=np.int64)
    best = nothing(len(rows), k)
    for part in row_parts(len(rows), len(labels), MAX_SCORES):
        candidates = np.tile(labels, (len(rows[part]), 1))  # (row of the part, given)
        scores = combined_scores(scorers, combine, rows[part], candidates)
        top = top_of_candidates(candidates, scores, k)
        best.labels[part], best.scores[part] = top.labels, top.scores
    return best


def combined_scores(
    scorers: Sequence[Sources],
    combine: Combination,
    rows: Int64[np.ndarray, row],
    labels: Int64[np.ndarray, "row m"],
) -> Float32[np.ndarray, "row m"]:
    """Return the scores of given labels, to the bit those of `rank`.

    -inf for labels that can't be scored, and for `NO_LABEL`.
    """
    return combine.combine(np.stack([_sums(each, rows, labels) for each in scorers]), labels)


def _sums(
    sources: Sources, rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
) -> Float32[np.ndarray, "row m"]:
    """Return one scorer's scores of given labels: float32 sums, added in the sources' order."""
    if not labels.size:
        return np.empty(labels.shape, dtype=np.float32)
    totals = sources[0].score(rows, labels)
    for source in sources[1:]:
        totals = totals + source.score(rows, labels)
    totals[labels == NO_LABEL] = -np.inf
    return totals


def search(
    scorers: Sequence[Sources], combine: Combination, k: int, rows: Int64[np.ndarray, row]
) -> Ranking:
    """Return the best labels of some queries by rounds of `rank`, each four times as deep."""
    best = nothing(len(rows), k)
    depth = max(k, _FIRST_DEPTH)
    places = np.arange(len(rows))  # in `rows` of those that are not done
    while len(places):
        found, is_certified = _round(scorers, combine, rows[places], k, depth)
        done, places = places[is_certified], places[~is_certified]
        best.labels[done] = found.labels[is_certified]
        best.scores[done] = found.scores[is_certified]
        depth *= 4
    return best


def _round(
    scorers: Sequence[Sources],
    combine: Combination,
    rows: Int64[np.ndarray, row],
    k: int,
    depth: int,
) -> tuple[Ranking, Bool[np.ndarray, row]]:
    """Return the best k of all labels named, and which queries are certified by that.

    Invariant: a label that no source of a scorer has named has, from that scorer, at most the sum
    of its sources' last scores. The same float32 additions in the same order make sum and
    frontier, and rounding is monotone, so this holds to the bit.
    """
    named = [np.tile(combine.leading(depth), (len(rows), 1))]
    frontiers = []
    for sources in scorers:
        tops = [source.top(rows, min(depth, source.num_labels)) for source in sources]
        named += [top.labels for top in tops]
        frontiers.append(_frontier(sources, tops, depth))
    labels = without_repeats(np.concatenate(named, axis=1))  # (row, named by anybody)
    best = top_of_candidates(labels, combined_scores(scorers, combine, rows, labels), k)
    bound = combine.bound(np.stack(frontiers), depth)
    # Strictly above: a label of an equal score and a smaller index must not be missed.
    return best, (best.scores[:, -1] > bound) | np.isneginf(bound)


def _frontier(sources: Sources, tops: Sequence[Ranking], depth: int) -> Float32[np.ndarray, row]:
    """Return what a scorer gives at most to a label that none of its sources has named.

    A label must be scorable by all sources, so when the smallest has named all of its labels, no
    other label gets a score: -inf.
    """
    last = tops[0].scores[:, -1]
    for top in tops[1:]:
        last = last + top.scores[:, -1]
    is_exhausted = depth >= min(source.num_labels for source in sources)
    return np.full_like(last, -np.inf) if is_exhausted else last
