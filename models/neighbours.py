"""Labels that are like a label: by the cosine of their vectors, or of their sparse weights."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from models.inner_products import products_with_rows
from models.ranking import NO_LABEL, Ranking, top_of_candidates, top_of_scores
from models.sparse import SparseModel

_MOST_PRODUCTS = 2**22
"""Held at a time: 16 MiB."""


@runtime_checkable  # the test run checks annotations by isinstance
class Neighbours(Protocol):
    """Finds the labels that are most like others."""

    def nearest(self, labels: Int64[np.ndarray, "label"], k: int) -> Ranking:
        """Return the k labels of largest cosine with each of these, itself left out.

        Ties: the smaller label index first. A row has `NO_LABEL` where there are fewer.
        """
        ...


class VectorNeighbours:
    """By a vector for every label."""

    def __init__(self, vectors: Float32[np.ndarray, "label dim"]) -> None:
        self._vectors = np.ascontiguousarray(vectors)

    @cached_property
    def _norms(self) -> Float32[np.ndarray, "label"]:
        """Lengths; 1 for a vector of zeros, whose cosines are then 0."""
        norms: Float32[np.ndarray, "label"] = np.linalg.norm(self._vectors, axis=1)
        return np.where(norms > 0, norms, np.float32(1))

    def nearest(self, labels: Int64[np.ndarray, "label"], k: int) -> Ranking:
        """Return the nearest labels (see `Neighbours.nearest`)."""
        num_parts = len(labels) * len(self._vectors) // _MOST_PRODUCTS + 1
        return _joined(
            [self._nearest(part, k) for part in np.array_split(labels, num_parts)], len(labels), k
        )

    def _nearest(self, labels: Int64[np.ndarray, "part"], k: int) -> list[Ranking]:
        """Let float32 products propose, whose rounding depends on the batch, and score again."""
        queries = self._vectors[labels]
        cosines = queries @ self._vectors.T / (self._norms[labels, None] * self._norms)
        cosines[np.arange(len(labels)), labels] = -np.inf
        k_found = min(k, len(self._vectors))
        least = np.partition(cosines, -k_found, axis=1)[:, -k_found]
        slack = np.float32(4 * (self._vectors.shape[1] + 8) * 2.0**-24)
        best = []
        for row, label in enumerate(labels):
            near = np.flatnonzero(cosines[row] >= least[row] - slack)[None]
            exact = products_with_rows(queries[row : row + 1], self._vectors, near)
            exact = exact / (self._norms[label] * self._norms[near])
            exact[near == label] = -np.inf
            best.append(top_of_candidates(near, exact, k))
        return best


class WeightNeighbours:
    """By the weights of the sparse model; labels without any have no neighbours."""

    def __init__(self, model: SparseModel, num_labels: int) -> None:
        self._model = model
        self._num_labels = num_labels

    @cached_property
    def _norms(self) -> Float32[np.ndarray, "covered"]:
        squares = self._model.weights.multiply(self._model.weights).sum(axis=1)
        return np.sqrt(np.asarray(squares, dtype=np.float32))

    def nearest(self, labels: Int64[np.ndarray, "label"], k: int) -> Ranking:
        """Return the nearest labels, those that share any weight (see `Neighbours.nearest`)."""
        return _joined([[self._nearest(int(label), k) for label in labels]], len(labels), k)

    def _nearest(self, label: int, k: int) -> Ranking:
        cosines = np.full((1, self._num_labels), -np.inf, dtype=np.float32)
        rows = np.flatnonzero(self._model.labels == label)
        if len(rows):
            products = csr_array(self._model.weights[rows]) @ self._model.weights_by_feature
            found = products.indices
            scaled = products.data / (self._norms[rows] * self._norms[found])
            cosines[0, self._model.labels[found]] = np.where(scaled != 0, scaled, -np.inf)
            cosines[0, label] = -np.inf
        return top_of_scores(cosines, k)


def _joined(parts: list[list[Ranking]], num_rows: int, k: int) -> Ranking:
    best = Ranking(
        labels=np.full((num_rows, k), NO_LABEL, dtype=np.int64),
        scores=np.full((num_rows, k), -np.inf, dtype=np.float32),
    )
    for row, found in enumerate(each for part in parts for each in part):
        best.labels[row], best.scores[row] = found.labels[0], found.scores[0]
    return best
