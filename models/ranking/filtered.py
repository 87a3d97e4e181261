"""Exact top-k among some of the labels, over any sum of sources.

Two ways, which give the same labels and scores, to the bit. Few labels are all scored, by random
access. Many are ranked by sorted access that skips all others and reads on until it has enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Int64

from models.labels.filters import Selection
from models.ranking.top_k import NO_LABEL, Ranking, Source, rank, top_of_candidates

_SCORE_ALL_SHARE = 64
"""All selected labels are scored where there are no more than the catalogue's divided by this."""
_SCORE_ALL_UP_TO = 1024
"""And in any case where there are no more than these; see tests/bench/labels.py."""
_MOST_SCORES = 2**18
"""Held at a time where all selected labels are scored."""
_SLACK = 64
"""Labels beyond twice those expected to be needed that are read at first."""


def rank_selected(sources: Sequence[Source], k: int, selection: Selection | None) -> Ranking:
    """Return the k selected labels with the largest sum of scores over the sources, exactly.

    Args:
        sources: As for `models.ranking.top_k.rank`.
        k: Labels wanted a query, at least 1; fewer are found where fewer are selected.
        selection: Whose labels may be found; None: all.
    """
    if selection is None:
        return rank(sources, k)
    if scores_all(selection):
        return rank_given(sources, k, selection.labels)
    return rank([SelectedSource(source, selection) for source in sources], k)


def scores_all(selection: Selection) -> bool:
    """Return whether so few labels are selected that all are scored."""
    most = max(_SCORE_ALL_UP_TO, len(selection.is_selected) // _SCORE_ALL_SHARE)
    return len(selection) <= most


def rank_given(sources: Sequence[Source], k: int, labels: Int64[np.ndarray, selected]) -> Ranking:
    """Return the best of given labels, all of which are scored.

    Args:
        sources: As for `models.ranking.top_k.rank`.
        k: At least 1.
        labels: Distinct.
    """
    num_parts = sources[0].num_queries * len(labels) // _MOST_SCORES + 1
    parts = []
    for rows in np.array_split(np.arange(sources[0].num_queries, dtype=np.int64), num_parts):
        given = np.tile(labels, (len(rows), 1))
        parts.append(top_of_candidates(given, total_scores(sources, rows, given), k))
    return Ranking(
        labels=np.concatenate([part.labels for part in parts]),
        scores=np.concatenate([part.scores for part in parts]),
    )


def total_scores(
    sources: Sequence[Source], rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
) -> Float32[np.ndarray, "row m"]:
    """Return the sums of scores of given labels, as `models.ranking.top_k.rank` adds them up.

    -inf for labels that a source can't score, and for `NO_LABEL`.
    """
    if not labels.size:
        return np.empty(labels.shape, dtype=np.float32)
    totals = sources[0].score(rows, labels)
    for source in sources[1:]:
        totals = totals + source.score(rows, labels)
    totals[labels == NO_LABEL] = -np.inf
    return totals


class SelectedSource:
    """A `Source` that has only the selected labels of another one."""

    def __init__(self, source: Source, selection: Selection) -> None:
        self._source = source
        self._is_selected = selection.is_selected
        self._num_left_out = len(selection.is_selected) - len(selection)
        self._num_labels = max(1, min(source.num_labels, len(selection)))

    @property
    def num_queries(self) -> int:
        """Rows of the batch."""
        return self._source.num_queries

    @property
    def num_labels(self) -> int:
        """At most so many labels are selected and can be scored; 1 where none are."""
        return self._num_labels

    def top(self, rows: Int64[np.ndarray, row], m: int) -> Ranking:
        """Return the m best selected labels of these queries (see `Source.top`).

        Of the other source's best, the selected ones are kept; where they are too few, four times
        as many are read.
        """
        best = Ranking(
            labels=np.full((len(rows), m), NO_LABEL, dtype=np.int64),
            scores=np.full((len(rows), m), -np.inf, dtype=np.float32),
        )
        places = np.arange(len(rows))
        most = self._source.num_labels
        expected = m * self._num_left_out // self._num_labels
        depth = min(most, m + min(self._num_left_out, 2 * expected + _SLACK))
        while len(places):
            found = self._source.top(rows[places], depth)
            is_kept = (found.labels != NO_LABEL) & self._is_selected[found.labels]
            is_done = (is_kept.sum(axis=1) >= m) | (depth == most)
            kept_first = np.argsort(~is_kept[is_done], axis=1, kind="stable")[:, :m]
            for out, values, nothing in (
                (best.labels, found.labels, NO_LABEL),
                (best.scores, found.scores, -np.inf),
            ):
                kept = np.where(is_kept, values, nothing)[is_done]
                out[places[is_done], : kept_first.shape[1]] = np.take_along_axis(
                    kept, kept_first, axis=1
                )
            places = places[~is_done]
            depth = min(most, 4 * depth)
        return best

    def score(
        self, rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of given labels; -inf for those that are not selected."""
        scores = self._source.score(rows, labels)
        scores[(labels == NO_LABEL) | ~self._is_selected[labels]] = -np.inf
        return scores
