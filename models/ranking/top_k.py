"""Exact top-k labels: sources of scores, and the Threshold Algorithm over sums of them.

A *source* scores labels for a batch of queries, with sorted and with random access. A scorer is a
monotone sum of sources; `rank` returns its exact top k (Fagin, Lotem & Naor 2003, section 4).
Everywhere: higher scores first, and of equal scores the smaller label index first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Int64

NO_LABEL = -1
"""Fills a ranking's row where fewer than k labels can be scored; its score is -inf."""

_FIRST_DEPTH = 128
"""Labels asked of every source in the first round of the Threshold Algorithm, at least.

A round costs more than labels do: see tests/bench/corrected_ranking.py.
"""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best labels of each query: higher scores first, ties by the smaller label index.

    Attributes:
        labels: Label indices; `NO_LABEL` where fewer than k labels can be scored.
        scores: Their scores; -inf at `NO_LABEL`.
    """

    labels: Int64[np.ndarray, "batch k"]
    scores: Float32[np.ndarray, "batch k"]


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


def rank(sources: Sequence[Source], k: int) -> Ranking:
    """Return the k labels with the largest sum of scores over the sources, exactly.

    The Threshold Algorithm of Fagin, Lotem & Naor (2003, section 4), for a batch: ask every source
    for its m best labels, score each label that any of them named on all sources, and stop for a
    query when its k-th best total exceeds the sum of the sources' m-th scores, which bounds every
    label not yet seen; else go on with 4m. Totals are float32 sums in the order of the sources.
    The stop is strict, so that a label of equal total and smaller index can't be missed.

    Args:
        sources: At least one, over the same queries and the same label indices.
        k: Labels wanted a query, at least 1.
    """
    assert sources and k >= 1
    rows = np.arange(sources[0].num_queries, dtype=np.int64)
    if len(sources) == 1:
        return sources[0].top(rows, k)
    result = nothing(len(rows), k)
    # A label must be scorable by every source, so the smallest source bounds the work.
    most = min(source.num_labels for source in sources)
    depth = max(k, _FIRST_DEPTH)
    while len(rows):
        best, is_certified = _threshold_round(sources, rows, k, depth)
        is_certified |= depth >= most
        done = rows[is_certified]
        result.labels[done] = best.labels[is_certified]
        result.scores[done] = best.scores[is_certified]
        rows = rows[~is_certified]
        depth *= 4
    return result


def _threshold_round(
    sources: Sequence[Source], rows: Int64[np.ndarray, row], k: int, depth: int
) -> tuple[Ranking, Bool[np.ndarray, row]]:
    """Return the best k of all labels that a source names among its `depth` best, and who is done.

    A query is done when no label outside the named ones can reach its k-th total.
    """
    tops = [source.top(rows, min(depth, source.num_labels)) for source in sources]
    named = np.concatenate([top.labels for top in tops], axis=1)  # (row, sources x depth)
    named = without_repeats(named)
    totals = np.zeros(named.shape, dtype=np.float32)
    for source in sources:
        totals += source.score(rows, named)
    totals[named == NO_LABEL] = -np.inf
    best = top_of_candidates(named, totals, k)
    frontier = np.zeros(len(rows), dtype=np.float32)
    for top in tops:
        frontier += top.scores[:, -1]
    return best, best.scores[:, -1] > frontier


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
    order = np.lexsort((labels, -scores), axis=1)[:, :k]
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
        k: Labels wanted a row, at least 1; the rest of a row is padded with `NO_LABEL`.
    """
    num_rows, num_labels = scores.shape
    if k >= num_labels:
        all_labels = np.broadcast_to(np.arange(num_labels, dtype=np.int64), scores.shape)
        return top_of_candidates(all_labels, scores, k)
    labels = np.empty((num_rows, k), dtype=np.int64)
    kth = -np.partition(-scores, k - 1, axis=1)[:, k - 1]
    for row in range(num_rows):
        # All labels of at least the k-th score, in index order: a stable sort keeps ties right.
        found = np.flatnonzero(scores[row] >= kth[row])
        labels[row] = found[np.argsort(-scores[row, found], kind="stable")[:k]]
    best = np.take_along_axis(scores, labels, axis=1)
    labels[np.isneginf(best)] = NO_LABEL
    return Ranking(labels=labels, scores=best)
