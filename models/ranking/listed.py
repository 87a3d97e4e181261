"""The source of scores that are listed: of some labels of each query, and of no others."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.native.library import F32, I64, INT, function
from longtail.models.ranking.top_k import NO_LABEL, Ranking, nothing

_listed_scores = function(
    "listed_scores", starts=I64, listed=I64["entry"], scores=F32["entry"], rows=I64["num_rows"],
    num_rows=INT, labels=I64["num_rows m"], m=INT, found=F32.out["num_rows m"],
)  # fmt: skip


class ListedSource:
    """The `Source` of a sparse matrix of scores: what has no entry can't be scored."""

    def __init__(self, scores: Float32[csr_array, "query label"]) -> None:
        """Sort the labels of each query.

        Args:
            scores: Entries of value 0 are scores as well; labels rise within a row.
        """
        self._starts = scores.indptr.astype(np.int64)
        self._labels = scores.indices.astype(np.int64)
        self._scores = scores.data
        rows = np.repeat(np.arange(scores.shape[0]), np.diff(self._starts))
        self._order = np.lexsort((self._labels, -self._scores, rows))
        self._most = max(1, int(np.diff(self._starts).max(initial=0)))

    @property
    def num_queries(self) -> int:
        """Rows of the matrix."""
        return len(self._starts) - 1

    @property
    def num_labels(self) -> int:
        """Most labels of a query; 1 where none has any."""
        return self._most

    def most_listed(self, rows: Int64[np.ndarray, row]) -> int:
        """Return the largest number of labels of one of these queries, at least 1."""
        return int((self._starts[rows + 1] - self._starts[rows]).max(initial=1))

    def top(self, rows: Int64[np.ndarray, row], m: int) -> Ranking:
        """Return the m best labels of these queries (see `Source.top`)."""
        best = nothing(len(rows), m)
        starts = self._starts[rows]
        sizes = np.minimum(self._starts[rows + 1] - starts, m)
        is_there = np.arange(m) < sizes[:, None]  # (row, m)
        entries = self._order[(starts[:, None] + np.arange(m))[is_there]]
        best.labels[is_there], best.scores[is_there] = self._labels[entries], self._scores[entries]
        return best

    def score(
        self, rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of given labels (see `Source.score`)."""
        found = np.full(labels.shape, -np.inf, dtype=np.float32)
        arrays = (self._starts, self._labels, self._scores)
        labels = np.ascontiguousarray(labels)
        _listed_scores(*arrays, rows, len(rows), labels, labels.shape[1], found)
        found[labels == NO_LABEL] = -np.inf
        return found
