"""The documents' vectors in the memory of a GPU, and the nearest of them, as `dense.c` finds them.

Components are bytes, so that products are whole numbers: float32 adds them up without rounding,
whatever the order and the precision of factors, as long as sums are below 2^24.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from longtail.models.memory.search import Neighbours
from longtail.models.memory.vectors import ByteVectors
from longtail.models.ranking.certified import certified_top, largest
from longtail.models.ranking.device_rows import Found, memory_errors
from longtail.models.ranking.top_k import NO_LABEL

_EXACT_DIM = 2**24 // 128**2
"""Products of bytes whose sum float32 holds, whatever they are."""
_MAX_NUMBERS = 2**26
"""float32 numbers held at a time, of rows or of products: 256 MiB."""


class DeviceVectors:
    """Vectors in bytes on one device."""

    def __init__(self, vectors: ByteVectors, device: str) -> None:
        """Copy the vectors."""
        with memory_errors(f"the vectors of {vectors.num_rows} documents"):
            self.rows = torch.from_numpy(np.array(vectors.bytes)).to(device)
            self.scales = torch.from_numpy(np.array(vectors.scales)).to(device)
        self.longest = float((lengths_of(vectors) * vectors.scales).max(initial=0))

    def nearest(self, queries: ByteVectors, k: int) -> Neighbours:
        """Return the vectors of largest cosine with each query (see `ByteVectors.nearest`)."""
        with memory_errors(f"a search of {k} documents for {queries.num_rows} texts"):
            rows, found = (x.cpu().numpy() for x in certified_top(_Cosines(self, queries), k))
        return Neighbours(rows, np.where(rows == NO_LABEL, np.float32(0), found))


class _Cosines:
    """Products of some queries with all vectors (see `longtail.models.ranking.certified.Scores`).

    Attributes:
        num_rows: Vectors.
        margins: How far a near product may lie from the exact one: by roundings to float32.
    """

    def __init__(self, vectors: DeviceVectors, queries: ByteVectors) -> None:
        """Take the queries to the device of the vectors."""
        self._vectors, device = vectors, vectors.rows.device
        self._bytes = torch.from_numpy(np.array(queries.bytes)).to(device)
        self._scales = torch.from_numpy(np.array(queries.scales)).to(device)
        sizes = lengths_of(queries) * queries.scales * vectors.longest
        self.num_rows = len(vectors.rows)
        roundings = 8 + self._bytes.shape[1] // _EXACT_DIM  # of a sum's parts, and of factors
        self.margins = torch.from_numpy(sizes * (roundings * 2.0**-24) + 2.0**-120).to(device)

    def propose(self, queries: Int64[Tensor, asked], m: int) -> Found:
        """Return the m largest near products (see `Scores.propose`)."""
        size = max(m, _MAX_NUMBERS // max(len(queries), self._bytes.shape[1], 1))
        starts = range(0, self.num_rows, size)
        found = [self._part(queries, slice(start, start + size), m) for start in starts]
        values = torch.cat([x for x, _ in found], dim=1)
        best = values.topk(m, dim=1)
        return best.values, torch.cat([x for _, x in found], dim=1).gather(1, best.indices)

    def _part(self, queries: Int64[Tensor, asked], part: slice, m: int) -> Found:
        rows, asked = self._vectors.rows[part], self._bytes[queries]
        sums = self._scales.new_zeros((len(asked), len(rows)))
        pairs = zip(
            torch.split(asked, _EXACT_DIM, 1), torch.split(rows, _EXACT_DIM, 1), strict=True
        )
        for some, others in pairs:  # of more than one, the sum is rounded
            sums += some.float() @ others.float().T
        near = sums.mul_(self._vectors.scales[part]).mul_(self._scales[queries, None])
        values, found = largest(near, min(m, len(rows)))
        return values, found + part.start

    def exact(
        self, queries: Int64[Tensor, asked], rows: Int64[Tensor, "asked m"]
    ) -> Float32[Tensor, "asked m"]:
        """Return the products with given vectors (see `Scores.exact`)."""
        size = max(1, _MAX_NUMBERS // max(1, rows.shape[1] * self._bytes.shape[1]))
        pairs = zip(torch.split(queries, size), torch.split(rows, size), strict=True)
        return torch.cat([self._exact_part(x, y) for x, y in pairs])

    def _exact_part(
        self, queries: Int64[Tensor, asked], rows: Int64[Tensor, "asked m"]
    ) -> Float32[Tensor, "asked m"]:
        asked, vectors = self._bytes[queries].double(), self._vectors.rows[rows].double()
        sums = (asked[:, None] * vectors).sum(2)
        scales = self._scales[queries].double()[:, None] * self._vectors.scales[rows].double()
        return (scales * sums).float()


def lengths_of(vectors: ByteVectors) -> Float64[np.ndarray, row]:
    """Return the lengths of vectors in bytes, scales not counted."""
    lengths: Float64[np.ndarray, row] = np.linalg.norm(vectors.bytes.astype(np.float64), axis=1)
    return lengths
