"""Sorted access to some of a source's labels: read on until enough of them are found."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.labels.selection import Selection
from longtail.models.ranking.top_k import NO_LABEL, Ranking, Source, nothing

_SLACK = 64
"""Labels beyond twice those expected to be needed that are read at first."""


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
        best = nothing(len(rows), m)
        unfinished = np.arange(len(rows))
        most = self._source.num_labels
        # Among the best labels of the other source, so many are not selected for m that are.
        expected = m * self._num_left_out // self._num_labels
        depth = min(most, m + min(self._num_left_out, 2 * expected + _SLACK))
        while len(unfinished):
            found = self._source.top(rows[unfinished], depth)  # (unfinished, depth)
            is_selected = (found.labels != NO_LABEL) & self._is_selected[found.labels]
            is_done = (is_selected.sum(axis=1) >= m) | (depth == most)
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
        """Return the scores of given labels; -inf for those that are not selected."""
        scores = self._source.score(rows, labels)
        scores[(labels == NO_LABEL) | ~self._is_selected[labels]] = -np.inf
        return scores
