"""Rankings of labels, the sources of scores that they are made from, and the best of few labels.

A *source* scores labels for a batch of queries, with sorted and with random access. A scorer is a
sum of sources; `longtail.models.ranking.threshold_algorithm` ranks by one scorer or by several
combined.
Everywhere: higher scores first, and of equal scores the smaller label index first.

Inner products are summed one by one, in float64 and in one order, so each is the same number
whatever else is computed, where a matrix product's rounding depends on its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.names import IndexName
from longtail.models.native.library import F32, I64, INT, RowsLike, function

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
        """Random access: the scores of given labels; -inf for labels that it can't score.

        The same label must get the same score here as in `top`, to the bit.
        """
        ...


@runtime_checkable
class SourceOfLabels(Source, Protocol):
    """A `Source` that can score the same labels for every query."""

    @property
    def labels(self) -> Int64[np.ndarray, covered]:
        """These labels, rising."""
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


_ALWAYS_UP_TO = 1024
"""So few candidates are all scored."""
_SHARE = 64
"""And no more than the catalogue's labels divided by this."""
_BY_MATRIX_UP_TO = 5000
"""So few labels are all scored where one matrix product does."""
MAX_SCORES = 2**18
"""Scores of one scorer that are held at a time."""
MAX_PRODUCTS = 2**22
"""Numbers of a float32 matrix product that are held at a time: 16 MiB."""


def scores_all(num_candidates: int, num_labels: int, *, by_matrix: bool = False) -> bool:
    """Return whether all candidates are scored, which for few is faster than a search.

    Either way gives the same labels and scores, to the bit.

    Args:
        num_candidates: Labels that may be returned.
        num_labels: Labels of the catalogue.
        by_matrix: Whether one matrix product proposes the best, else each is scored by itself.
    """
    if by_matrix:
        return num_candidates <= _BY_MATRIX_UP_TO
    return num_candidates <= max(_ALWAYS_UP_TO, num_labels // _SHARE)


def row_parts(num_rows: int, num_columns: int, max_numbers: int) -> list[slice]:
    """Return consecutive parts of a matrix's rows, at least one, of about equal size.

    Args:
        num_rows: All rows.
        num_columns: Numbers in a row.
        max_numbers: Numbers in a part, at most, unless a single row has more.
    """
    num_parts = max(1, min(num_rows, num_rows * num_columns // max_numbers + 1))
    ends = [num_rows * part // num_parts for part in range(num_parts + 1)]
    return [slice(start, end) for start, end in pairwise(ends)]


_ROWS_A_PART = 64
_Result = TypeVar("_Result")


def in_row_parts(
    work: Callable[[slice], _Result],
    num_rows: int,
    num_threads: int,
    part_size: int | None = None,
) -> list[_Result]:
    """Return the results of some work on consecutive parts of the rows, at least one, in order.

    Args:
        work: Called with each part; it should release the interpreter's lock.
        num_rows: All rows.
        num_threads: That work at the same time, where there are many rows.
        part_size: Rows that one thread works on at a time; None: 64.
    """
    part_size = part_size or _ROWS_A_PART
    parts = [slice(start, start + part_size) for start in range(0, max(1, num_rows), part_size)]
    if len(parts) == 1 or num_threads == 1:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(num_threads) as threads:
        return list(threads.map(work, parts))


_products_with_rows = function(
    "products_with_rows", queries=F32["num_queries dim"], num_queries=INT, dim=INT,
    vectors=F32["covered stored"], stored=INT, rows=I64["num_queries m"], m=INT,
    products=F32.out["num_queries m"],
)  # fmt: skip


def products_with_rows(
    queries: Float32[np.ndarray, "query dim"],
    vectors: Float32[np.ndarray, "covered stored"],
    rows: Int64[np.ndarray, "query m"],
) -> Float32[np.ndarray, "query m"]:
    """Return the inner product of each query with each of its rows, rounded to float32 once.

    Args:
        queries: What to multiply.
        vectors: All rows; what they have beyond the length of a query plays no part.
        rows: Which rows to multiply each query with.
    """
    products = np.empty(rows.shape, dtype=np.float32)
    queries, rows = np.ascontiguousarray(queries), np.ascontiguousarray(rows)
    _products_with_rows(
        queries, *queries.shape, vectors, vectors.shape[1], rows, rows.shape[1], products
    )
    return products


_listed_scores = function(
    "listed_scores", starts=I64, listed=I64["entry"], scores=F32["entry"], rows=I64["num_rows"],
    num_rows=INT, labels=I64["num_rows m"], m=INT, found=F32.out["num_rows m"],
)  # fmt: skip


def best_listed(source: Source, m: int) -> Float32[csr_array, "query label"]:
    """Return the scores of the m best labels of each query, and of no others."""
    rows = np.arange(source.num_queries, dtype=np.int64)
    best = source.top(rows, min(m, source.num_labels))
    order = np.argsort(best.labels, axis=1)
    labels = np.take_along_axis(best.labels, order, axis=1)
    scores = np.take_along_axis(best.scores, order, axis=1)
    is_label = labels != NO_LABEL
    starts = np.concatenate([[0], is_label.sum(axis=1).cumsum()])
    assert isinstance(source, SourceOfLabels)
    shape = (len(rows), int(source.labels.max(initial=0)) + 1)
    return csr_array((scores[is_label], labels[is_label], starts), shape=shape)


class ListedSource:
    """The `Source` of a sparse matrix of scores: what has no entry can't be scored."""

    def __init__(self, scores: RowsLike) -> None:
        """Take the scores.

        Args:
            scores: Entries of value 0 are scores as well; labels rise within a row.
        """
        self._starts = np.ascontiguousarray(scores.indptr, dtype=np.int64)
        self._labels = np.ascontiguousarray(scores.indices, dtype=np.int64)
        self._scores = scores.data

    @cached_property
    def _order(self) -> Int64[np.ndarray, entry]:
        """The entries, those of each query by falling score."""
        rows = np.repeat(np.arange(self.num_queries), np.diff(self._starts))
        found: Int64[np.ndarray, entry] = np.lexsort((self._labels, -self._scores, rows))
        return found

    @property
    def num_queries(self) -> int:
        """Rows of the matrix."""
        return len(self._starts) - 1

    @property
    def num_labels(self) -> int:
        """Most labels of a query; 1 where none has any."""
        return int((self._starts[1:] - self._starts[:-1]).max(initial=1))

    def listed(self, part: slice) -> Ranking:
        """Return all labels of consecutive queries, in any order (see `Ranking`)."""
        starts = self._starts[part.start : part.stop + 1]
        sizes, held = starts[1:] - starts[:-1], slice(starts[0], starts[-1])
        best = nothing(len(sizes), int(sizes.max(initial=1)))
        is_there = np.arange(best.labels.shape[1]) < sizes[:, None]  # (row, m)
        best.labels[is_there], best.scores[is_there] = self._labels[held], self._scores[held]
        return best

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
