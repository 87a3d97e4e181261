"""Rankings of labels, the sources of scores that they are made from, and the best of few labels.

A *source* scores labels for a batch of queries, with sorted and with random access. A scorer is a
sum of sources; `longtail.models.ranking.threshold_algorithm` ranks by one scorer or by several
combined.
Everywhere: higher scores first, and of equal scores the smaller label index first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.names import IndexName

NO_LABEL = -1
"""Fills a ranking's row where fewer than k labels can be scored; its score is -inf."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best labels of each query: higher scores first, ties by the smaller label index.

    Attributes:
        labels: Label indices; `NO_LABEL` where fewer than k labels can be scored.
        scores: Their scores; -inf at `NO_LABEL`.
    """

    labels: Int64[np.ndarray, "batch k"]
    scores: Float32[np.ndarray, "batch k"]

    @classmethod
    def joined(cls, parts: Sequence[Ranking]) -> Ranking:
        """Return the queries of several rankings of one width, in their order."""
        return cls(
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.scores for part in parts]),
        )

    def first(self, k: int) -> Ranking:
        """Return the k best labels of each query; all where there are no more."""
        return Ranking(self.labels[:, :k], self.scores[:, :k])


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """What searches an index.

    Attributes:
        index: "faiss" or "torch".
        speedup: How many times as long the other one took on these vectors; None: not tried.
    """

    index: IndexName
    speedup: float | None = None


@runtime_checkable  # the test run checks annotations by isinstance
class Source(Protocol):
    """Scores of labels for one batch of queries (the queries are bound to the source)."""

    @property
    def num_queries(self) -> int:
        """Rows of the batch."""
        ...

    @property
    def num_labels(self) -> int:
        """Number of labels that the source can score; all others score -inf."""
        ...

    def top(self, rows: Int64[np.ndarray, row], m: int) -> Ranking:
        """Sorted access: the m best labels of these queries, exact, padded with `NO_LABEL`."""
        ...

    def score(
        self, rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Random access: the scores of given labels; -inf for those that it can't score.

        The same label must get the same score here as in `top`, to the bit.
        """
        ...


def nothing(num_rows: int, k: int) -> Ranking:
    """Return a ranking without labels."""
    return Ranking(
        labels=np.full((num_rows, k), NO_LABEL, dtype=np.int64),
        scores=np.full((num_rows, k), -np.inf, dtype=np.float32),
    )


def without_repeats(labels: Int64[np.ndarray, "row m"]) -> Int64[np.ndarray, "row m"]:
    """Return each row sorted, with all but the first of equal labels turned into `NO_LABEL`."""
    ordered = np.sort(labels, axis=1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = NO_LABEL
    return ordered


def top_of_candidates(
    labels: Int64[np.ndarray, "row m"], scores: Float32[np.ndarray, "row m"], k: int
) -> Ranking:
    """Return the k best of given labels a row; labels are distinct, and -inf scores are padding."""
    order = np.lexsort((labels, -scores), axis=1)[:, :k]  # the last key sorts first
    best_scores = np.take_along_axis(scores, order, axis=1)
    best_labels = np.take_along_axis(labels, order, axis=1)
    best_labels[np.isneginf(best_scores)] = NO_LABEL
    missing = k - order.shape[1]
    if missing > 0:
        padding = ((0, 0), (0, missing))
        best_labels = np.pad(best_labels, padding, constant_values=NO_LABEL)
        best_scores = np.pad(best_scores, padding, constant_values=-np.inf)
    return Ranking(labels=best_labels, scores=best_scores)


def top_of_scores(scores: Float32[np.ndarray, "row label"], k: int) -> Ranking:
    """Return the k best labels of each row of dense scores, ties by the smaller label index.

    Args:
        scores: One score for every label; -inf for a label that can't be scored.
        k: Number of labels per row, at least 1; the rest of a row is padded with `NO_LABEL`.
    """
    num_rows, num_labels = scores.shape
    if k >= num_labels:
        all_labels = np.broadcast_to(np.arange(num_labels, dtype=np.int64), scores.shape)
        return top_of_candidates(all_labels, scores, k)
    labels = np.empty((num_rows, k), dtype=np.int64)
    kth = -np.partition(-scores, k - 1, axis=1)[:, k - 1]
    for row in range(num_rows):
        # All labels of at least the k-th score, in index order: a stable sort keeps ties right.
        candidates = np.flatnonzero(scores[row] >= kth[row])
        labels[row] = candidates[np.argsort(-scores[row, candidates], kind="stable")[:k]]
    best = np.take_along_axis(scores, labels, axis=1)
    labels[np.isneginf(best)] = NO_LABEL
    return Ranking(labels=labels, scores=best)
