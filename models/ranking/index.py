"""Inner products with every label vector, exactly, on a CPU or on a GPU.

float32 proposes, float64 decides: a search yields candidates by float32 matrix products whose
rounding depends on the batch; each candidate is scored again in float64 and rounded once. So a
text has the same scores and order whatever batch it came in, and equal vectors tie exactly.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from longtail.models.errors import ConfigError, DataError
from longtail.models.names import IndexName
from longtail.models.processor import sees_gpu
from longtail.models.ranking.certified import SLACK, Scores, certified_top, product_error
from longtail.models.ranking.device_rows import DeviceRows, Found, memory_errors
from longtail.models.ranking.top_k import (
    NO_LABEL,
    Ranking,
    products_with_rows,
    row_parts,
    top_of_candidates,
)

_BLOCK_NUMBERS = 2**22  # of vectors that are turned into float64 at a time: 32 MiB


class InnerProductIndex:
    """Label vectors, with exact top-k search.

    Attributes:
        labels: The label index of each row, rising.
        dim: Columns of a vector.
        device: Where the vectors lie.
        choice: What searches, and how much faster it was than the other.
    """

    def __init__(
        self,
        vectors: Float32[np.ndarray, "covered dim"],
        labels: Int64[np.ndarray, covered],
        *,
        device: str = "cpu",
        index: IndexName = "torch",
    ) -> None:
        """Index the vectors.

        Args:
            vectors: One row for every label that can be scored; may be none.
            labels: The label index of each row, rising.
            device: "cpu", "cuda" (the current GPU of PyTorch) or "auto" (a GPU if there is one).
            index: What searches: "faiss", "torch", or "auto" for the faster one on these vectors.
        """
        assert len(vectors) == len(labels) and (np.diff(labels) > 0).all()
        self.labels = labels
        norms = _norms(vectors)
        _check_finite(norms, "label")
        self._largest_norm = float(norms.max(initial=0))
        self._rows = rows = DeviceRows(vectors, norms, chosen_device(device), index)
        self.dim, self.device, self.choice = rows.dim, rows.device, rows.choice
        self._label_of_row = np.append(labels, NO_LABEL)  # which row -1 is
        self._row_of_label = np.full(int(labels.max(initial=0)) + 1, NO_LABEL, dtype=np.int64)
        self._row_of_label[labels] = np.arange(len(labels))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def vectors(self) -> Float32[np.ndarray, "covered dim"]:
        """The vectors, in main memory."""
        return self._rows.rows[:, : self.dim].cpu().numpy()

    def top(self, queries: Float32[np.ndarray, "row dim"], k: int) -> Ranking:
        """Return the exact k best labels of each query, ties by the smaller label index."""
        whole, m = self._rows.whole, k + SLACK
        if whole is None or m >= len(self):
            return self.best(self.scores(queries), k)
        norms = _norms(queries)
        _check_finite(norms, "text")
        found = whole.propose(queries, norms, m)
        exact = products_with_rows(queries, self._rows.rows.numpy(), found.rows)
        best = top_of_candidates(self.labels[found.rows], exact, k)
        rest = np.flatnonzero(~(best.scores[:, -1] > found.least + found.margins))
        if len(rest):
            others = self.best(self.scores(queries[rest]), k)
            best.labels[rest], best.scores[rest] = others.labels, others.scores
        return best

    def best(self, scores: Scores, k: int) -> Ranking:
        """Return the exact k best labels of each query by scores of this index's rows."""
        with memory_errors(f"a search of {k} labels for {len(scores.margins)} texts"):
            rows, best = (x.cpu().numpy() for x in certified_top(scores, k))
        return Ranking(self._label_of_row[rows], best)

    def score(
        self, queries: Float32[np.ndarray, "row dim"], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the inner products with given labels; -inf for labels that are not indexed."""
        is_known = (labels >= 0) & (labels < len(self._row_of_label))
        indexed = self._row_of_label[np.where(is_known, labels, 0)]
        is_known &= indexed != NO_LABEL
        if not len(self):
            return np.full(labels.shape, -np.inf, dtype=np.float32)
        rows = torch.from_numpy(np.where(is_known, indexed, 0)).to(self.device)
        scores = self._rows.exact(self._rows.on_device(queries), rows).cpu().numpy()
        scores[~is_known] = -np.inf
        return scores

    def scores(self, queries: Float32[np.ndarray, "row dim"]) -> ProductScores:
        """Return the scores of all rows for some queries, on the device."""
        bounds = np.stack(self._rounding_bounds(queries))
        sizes, margins = torch.from_numpy(bounds).to(self.device)
        return ProductScores(self._rows, self._rows.on_device(queries), sizes, margins)

    def _rounding_bounds(
        self, queries: Float32[np.ndarray, "row dim"]
    ) -> tuple[Float64[np.ndarray, row], Float64[np.ndarray, row]]:
        """Return what no product of a query exceeds, and how far float32 may be from the exact one.

        Higham (2002, 3.1).
        Products below 2^-126 lose digits, or become 0. No bound holds where one may overflow.
        """
        norms = _norms(queries)
        _check_finite(norms, "text")
        unit = 2.0**-24
        dim = self.dim + 2  # + 2: the final roundings of either side
        gamma = dim * unit / (1 - dim * unit) + product_error()
        longest = norms * self._largest_norm  # of any sum of products, by Cauchy and Schwarz
        margin: Float64[np.ndarray, row] = 2 * gamma * longest + dim * 2.0**-126
        return longest, np.where(longest < 2.0**127, margin, np.inf)


class ProductScores:
    """Inner products of some queries with all rows of an index (see `Scores`).

    Attributes:
        num_rows: The index's number of rows.
        sizes: What no product of each query exceeds.
        margins: How far a float32 product of each query may lie from its exact score.
    """

    def __init__(
        self,
        rows: DeviceRows,
        queries: Float32[Tensor, "query stored"],
        sizes: Float64[Tensor, query],
        margins: Float64[Tensor, query],
    ) -> None:
        self.num_rows, self.sizes, self.margins = len(rows.rows), sizes, margins
        self._rows, self._queries = rows, queries

    def propose(self, queries: Int64[Tensor, asked], m: int) -> Found:
        """Return the m largest products (see `Scores.propose`)."""
        return self._rows.propose(self._queries[queries], m)

    def products(self, queries: Int64[Tensor, asked]) -> Float32[Tensor, "asked row"]:
        """Return the products with all rows, in float32."""
        return self._rows.products(self._queries[queries])

    def exact(
        self, queries: Int64[Tensor, asked], rows: Int64[Tensor, "asked m"]
    ) -> Float32[Tensor, "asked m"]:
        """Return the exact products with given rows (see `Scores.exact`)."""
        return self._rows.exact(self._queries[queries], rows)


class InnerProductSource:
    """The `Source` of one batch of query vectors over an index."""

    def __init__(self, index: InnerProductIndex, queries: Float32[np.ndarray, "batch dim"]) -> None:
        """Bind the queries to the index."""
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

    @property
    def labels(self) -> Int64[np.ndarray, covered]:
        """The indexed labels."""
        return self._index.labels

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
    is_bad = ~np.isfinite(norms)
    if is_bad.any():
        raise DataError(
            f"inner products: {int(is_bad.sum())} (the first in row {int(is_bad.argmax())}) of "
            f"{len(norms)} {whose} vectors are not finite; the model is damaged or numerically "
            "unstable: train it again"
        )


def chosen_device(device: str) -> str:
    """Return "cpu" or "cuda" for a device's name, which may be "auto"."""
    if device == "cuda" and not sees_gpu():
        raise ConfigError(
            f"device {device!r}: PyTorch sees no GPU; install the extra 'gpu' on a machine with an "
            "NVIDIA GPU, or use the device 'cpu'"
        )
    return ("cuda" if sees_gpu() else "cpu") if device == "auto" else device
