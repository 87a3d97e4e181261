"""Labels that are like a label: by the cosine of their vectors, or of their sparse weights.

A cosine depends on its two labels alone, to the bit.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Int64
from scipy.sparse import csr_array

from longtail.models.ranking.exhaustive import MAX_PRODUCTS, row_parts
from longtail.models.ranking.inner_products import products_with_rows
from longtail.models.ranking.top_k import (
    Ranking,
    nothing,
    top_of_candidates,
    top_of_scores,
)
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.sparse_kernels import sum_up


@runtime_checkable  # the test run checks annotations by isinstance
class LabelNeighbours(Protocol):
    """Finds the labels that are most like others."""

    def nearest_to(self, labels: Int64[np.ndarray, label], k: int) -> Ranking:
        """Return the k labels of largest cosine with each of these, itself left out.

        Retired labels are left out, too. Ties: the smaller label index first. A row has `NO_LABEL`
        where there are fewer.

        Args:
            labels: Rows of the catalogue.
            k: At least 1.
        """
        ...


class VectorNeighbours:
    """By a vector for every label."""

    def __init__(
        self, vectors: Float32[np.ndarray, "label dim"], is_retired: Bool[np.ndarray, label]
    ) -> None:
        self._vectors = np.ascontiguousarray(vectors)
        self._is_retired = is_retired

    @cached_property
    def _norms(self) -> Float32[np.ndarray, label]:
        return _lengths(self._vectors)

    def nearest_to(self, labels: Int64[np.ndarray, label], k: int) -> Ranking:
        """Return the nearest labels (see `LabelNeighbours`)."""
        parts = row_parts(len(labels), len(self._vectors), MAX_PRODUCTS)
        return _joined([self._nearest(labels[part], k) for part in parts], len(labels), k)

    def _nearest(self, labels: Int64[np.ndarray, part], k: int) -> list[Ranking]:
        """Let float32 products propose, whose rounding depends on the batch, and score again."""
        queries, norms = self._vectors[labels], self._norms[labels]
        cosines = queries @ self._vectors.T / (norms[:, None] * self._norms)
        cosines[np.arange(len(labels)), labels] = -np.inf
        cosines[:, self._is_retired] = -np.inf
        k_found = min(k, len(self._vectors))
        least = np.partition(cosines, -k_found, axis=1)[:, -k_found]
        slack = np.float32(4 * (self._vectors.shape[1] + 8) * 2.0**-24)
        best = []
        for row, label in enumerate(labels):
            near = np.flatnonzero(cosines[row] >= least[row] - slack)[None]
            exact = products_with_rows(queries[row : row + 1], self._vectors, near)
            exact = exact / (norms[row] * self._norms[near])
            exact[(near == label) | self._is_retired[near]] = -np.inf
            best.append(top_of_candidates(near, exact, k))
        return best


class WeightNeighbours:
    """By the weights of the sparse model; labels without any have no neighbours."""

    def __init__(self, model: SparseModel, is_retired: Bool[np.ndarray, label]) -> None:
        self._model = model
        self._is_retired = is_retired

    def nearest_to(self, labels: Int64[np.ndarray, label], k: int) -> Ranking:
        """Return the nearest labels, those that share any weight (see `LabelNeighbours`)."""
        best, covered = nothing(len(labels), k), self._model.labels
        places = np.flatnonzero(np.isin(labels, covered))
        rows = np.searchsorted(covered, labels[places])
        queries = self._model.rows(rows)
        for number, place in enumerate(places.tolist()):
            found = self._nearest(queries[[number]], int(rows[number]), k)
            best.labels[place], best.scores[place] = found.labels[0], found.scores[0]
        return best

    def _nearest(self, query: Float32[csr_array, "1 feature"], row: int, k: int) -> Ranking:
        covered, norms = self._model.labels, self._model.norms
        products = np.zeros((1, len(covered)), dtype=np.float32)
        sum_up(query, self._model.native_weights, np.zeros(1, dtype=np.int64), products)
        shares = products[0] != 0
        cosines = np.full((1, len(self._is_retired)), -np.inf, dtype=np.float32)
        cosines[0, covered[shares]] = products[0, shares] / (norms[row] * norms[shares])
        cosines[0, covered[row]] = -np.inf
        cosines[0, self._is_retired] = -np.inf
        return top_of_scores(cosines, k)


def _lengths(vectors: Float32[np.ndarray, "label dim"]) -> Float32[np.ndarray, label]:
    """Return the lengths of vectors; 1 for a vector of zeros, whose cosines are then 0."""
    norms: Float32[np.ndarray, label] = np.linalg.norm(vectors, axis=1)
    return np.where(norms > 0, norms, np.float32(1))


def _joined(parts: list[list[Ranking]], num_rows: int, k: int) -> Ranking:
    best = nothing(num_rows, k)
    for row, found in enumerate(each for part in parts for each in part):
        best.labels[row], best.scores[row] = found.labels[0], found.scores[0]
    return best
