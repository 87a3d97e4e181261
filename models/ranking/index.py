"""Inner products with every label vector, exactly: a matrix product on a CPU, FAISS on a GPU.

float32 proposes, float64 decides: a search yields candidates by float32 matrix products whose
rounding depends on the batch; each candidate is scored again in float64 and rounded once. So a
text has the same scores and order whatever batch it came in, and equal vectors tie exactly.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64

from longtail.models.errors import ConfigError, DataError
from longtail.models.ranking.exhaustive import row_parts
from longtail.models.ranking.gpu_index import GpuIndex, num_gpus, padded_columns
from longtail.models.ranking.inner_products import products_with_rows
from longtail.models.ranking.top_k import NO_LABEL, Ranking, top_of_candidates

_MAX_PRODUCTS = 2**24  # float32 products held at a time: 64 MiB
_BLOCK_NUMBERS = 2**22  # of vectors that are turned into float64 at a time: 32 MiB
_SLACK = 16  # candidates beyond k in the first search; more are asked for when ties need them


class InnerProductIndex:
    """Label vectors, with exact top-k search; on a GPU in a flat index of FAISS."""

    def __init__(
        self,
        vectors: Float32[np.ndarray, "covered dim"],
        labels: Int64[np.ndarray, covered],
        *,
        device: str = "cpu",
    ) -> None:
        """Index the vectors.

        Args:
            vectors: One row for every label that can be scored; may be none.
            labels: The label index of each row, rising.
            device: "cpu", "cuda" (the current GPU of PyTorch) or "auto" (a GPU if there is one).

        Raises:
            DataError: A vector is not finite.
            ConfigError: A GPU is asked for and there is none, or its memory is too small.
        """
        assert len(vectors) == len(labels) and (np.diff(labels) > 0).all()
        self.labels = labels
        self.is_on_gpu = _wants_gpu(device)
        norms = _norms(vectors)
        _check_finite(norms, "label")
        self._largest_norm = float(norms.max(initial=0))
        # On a GPU with zeros behind each row, in memory once.
        self._stored = padded_columns(vectors) if self.is_on_gpu else np.ascontiguousarray(vectors)
        self.vectors = self._stored[:, : vectors.shape[1]]
        if self.is_on_gpu and len(vectors):
            self._gpu_index = GpuIndex(self._stored)
        self._row_of_label = np.full(int(labels.max(initial=0)) + 1, NO_LABEL, dtype=np.int64)
        self._row_of_label[labels] = np.arange(len(labels))

    def __len__(self) -> int:
        return len(self.labels)

    def top(self, queries: Float32[np.ndarray, "row dim"], k: int) -> Ranking:
        """Return the exact k best labels of each query, ties by the smaller label index.

        A search of m > k candidates is enough for a query when its k-th exact score is above the
        m-th score of the search by more than float32 rounding can explain; else m grows fourfold.

        Raises:
            DataError: A query is not finite.
            ConfigError: The memory of the GPU is too small for it.
        """
        k_found = min(k, len(self))
        labels = np.full((len(queries), k), NO_LABEL, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        margin = self._rounding_bound(queries)
        rows = np.arange(len(queries))
        m = min(len(self), k_found + _SLACK)
        while len(rows) and m:
            proposed, candidates = self._search(queries[rows], m)  # (row, m)
            exact = self._dot(queries[rows], candidates)
            best = top_of_candidates(self.labels[candidates], exact, k_found)
            # Proposals fall, and none is off by more than the margin: so no label beyond the m-th
            # has an exact score above the m-th proposal plus the margin.
            is_done = best.scores[:, -1] > proposed[:, -1] + margin[rows]
            is_done |= m == len(self)
            labels[rows[is_done], :k_found] = best.labels[is_done]
            scores[rows[is_done], :k_found] = best.scores[is_done]
            rows = rows[~is_done]
            m = min(len(self), 4 * m)
        return Ranking(labels=labels, scores=scores)

    def score(
        self, queries: Float32[np.ndarray, "row dim"], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the inner products with given labels; -inf for labels that are not indexed."""
        is_known = (labels >= 0) & (labels < len(self._row_of_label))
        indexed = self._row_of_label[np.where(is_known, labels, 0)]
        is_known &= indexed != NO_LABEL
        if not len(self):
            return np.full(labels.shape, -np.inf, dtype=np.float32)
        scores = self._dot(queries, np.where(is_known, indexed, 0))
        scores[~is_known] = -np.inf
        return scores

    def products(
        self, queries: Float32[np.ndarray, "row dim"]
    ) -> tuple[Float32[np.ndarray, "row covered"], Float64[np.ndarray, row]]:
        """Return float32 inner products with all rows, and how far they may be from `score`.

        Raises:
            DataError: A query is not finite.
        """
        margins = self._rounding_bound(queries)
        return queries @ self.vectors.T, margins

    def _search(
        self, queries: Float32[np.ndarray, "row dim"], m: int
    ) -> tuple[Float32[np.ndarray, "row m"], Int64[np.ndarray, "row m"]]:
        if m == len(self):  # every label is a candidate: nothing to search for
            everything = np.arange(m, dtype=np.int64)
            shape = (len(queries), m)
            return np.zeros(shape, dtype=np.float32), np.broadcast_to(everything, shape)
        if self.is_on_gpu:
            return self._gpu_index.search(queries, m)
        parts = [
            torch.from_numpy(queries[part] @ self.vectors.T).topk(m)
            for part in row_parts(len(queries), len(self), _MAX_PRODUCTS)
        ]
        scores = torch.cat([part.values for part in parts]).numpy()
        return scores, torch.cat([part.indices for part in parts]).numpy()

    def _dot(
        self, queries: Float32[np.ndarray, "row dim"], rows: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return inner products with indexed rows, in float64, rounded once."""
        return products_with_rows(queries, self._stored, rows)

    def _rounding_bound(self, queries: Float32[np.ndarray, "row dim"]) -> Float64[np.ndarray, row]:
        """Return how far a float32 inner product may lie from the exact one (Higham 2002, 3.1).

        Products below 2^-126 lose digits, or become 0.

        Raises:
            DataError: A query is not finite.
        """
        norms = _norms(queries)
        _check_finite(norms, "text")
        unit = 2.0**-24
        dim = self.vectors.shape[1] + 2  # + 2: the final roundings of either side
        gamma = dim * unit / (1 - dim * unit)
        margin: Float64[np.ndarray, row] = norms * (2 * gamma * self._largest_norm)
        margin += dim * 2.0**-126
        return margin


class InnerProductSource:
    """The `Source` of one batch of query vectors over an index."""

    def __init__(self, index: InnerProductIndex, queries: Float32[np.ndarray, "batch dim"]) -> None:
        """Bind the queries to the index.

        Raises:
            DataError: A query is not finite.
        """
        _check_finite(_norms(queries), "text")
        self._index = index
        self._queries = np.ascontiguousarray(queries)

    @property
    def num_queries(self) -> int:
        """Rows of the batch."""
        return len(self._queries)

    @property
    def num_labels(self) -> int:
        """Number of indexed labels; 1 where there are none."""
        return max(1, len(self._index))

    def top(self, rows: Int64[np.ndarray, row], m: int) -> Ranking:
        """Return the m best labels of these queries (see `Source.top`)."""
        return self._index.top(self._queries[rows], m)

    def score(
        self, rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of given labels (see `Source.score`)."""
        return self._index.score(self._queries[rows], labels)


def _norms(vectors: Float32[np.ndarray, "row dim"]) -> Float64[np.ndarray, row]:
    """Return the lengths of vectors; in float64, as float32 has no squares of 1e-24.

    They are finite where the vectors are: no float32 has a square that float64 can't hold.
    """
    rows = np.empty(len(vectors), dtype=np.float64)
    for part in row_parts(len(vectors), vectors.shape[1], _BLOCK_NUMBERS):
        rows[part] = np.linalg.norm(vectors[part].astype(np.float64), axis=1)
    return rows


def _check_finite(norms: Float64[np.ndarray, row], whose: str) -> None:
    """Refuse vectors whose lengths are not finite."""
    is_bad = ~np.isfinite(norms)
    if is_bad.any():
        raise DataError(
            f"inner products: {int(is_bad.sum())} (the first in row {int(is_bad.argmax())}) of "
            f"{len(norms)} {whose} vectors are not finite; the model is damaged or numerically "
            "unstable: train it again"
        )


def _wants_gpu(device: str) -> bool:
    if device == "auto":
        return num_gpus() > 0
    if device == "cuda" and num_gpus() == 0:
        raise ConfigError(
            f"device {device!r}: FAISS or PyTorch sees no GPU; install the extra 'gpu' and a "
            "PyTorch with CUDA on a machine with an NVIDIA GPU, or use the device 'cpu'"
        )
    return device == "cuda"
