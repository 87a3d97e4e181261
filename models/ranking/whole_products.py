"""Inner products of vectors in whole numbers, which propose rows on a CPU: calls of `whole.c`.

A processor multiplies whole numbers of 16 bits twice as fast as float32 and reads them in half the
time. Their sums are exact, so a product is off only by what its vectors were rounded by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int16, Int64
from torch import get_num_threads

from longtail.models.native.library import F32, I16, I64, INT, function
from longtail.models.ranking.row_threads import in_row_parts

_PACK = 16
"""Rows that lie together, as in whole.c."""
_MOST, _LONGEST = 2**15 - 1, 46_000
"""Largest component and length of a vector in whole numbers: a product of two lengths is below
2^31, with room for what rounding adds."""
_MAX_DIM = 2**14
"""So that rounding, by half a number in each dimension, adds less than that room."""
_BLOCK_NUMBERS = 2**22
_ALONE = 2**24
"""Multiplications that one thread does by itself."""
_is_fast = function("whole_is_fast")
_nearest = function(
    "whole_nearest", queries=I16["num_queries dim"], num_queries=INT, packs=I16, begin=INT, end=INT,
    dim=INT, m=INT, found=I64.out["num_queries m"], sums=F32.out["num_queries m"],
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Proposals:
    """Rows of large products for each query, in no order.

    Attributes:
        rows: Numbers of the rows.
        least: What the near product of no other row exceeds.
        margins: How far a near product may lie from the exact one, rounded to float32.
    """

    rows: Int64[np.ndarray, "query m"]
    least: Float64[np.ndarray, query]
    margins: Float64[np.ndarray, query]


class WholeRows:
    """Vectors in whole numbers, all by one scale."""

    def __init__(self, vectors: Float32[np.ndarray, "row dim"], longest: float) -> None:
        """Round vectors.

        Args:
            vectors: Finite, and such that it `pays`.
            longest: Length of the longest one.
        """
        self._num_rows, dim = vectors.shape
        self._longest, self._error = longest, 0.0
        size = max(1, _BLOCK_NUMBERS // (_PACK * dim)) * _PACK
        parts = [slice(start, start + size) for start in range(0, self._num_rows, size)]
        largest = max(float(np.abs(vectors[part]).max()) for part in parts)
        self._scale = float(_scales(np.array([largest]), np.array([longest]))[0])
        num_packs = -(-self._num_rows // _PACK)
        self._packs = np.zeros((num_packs, (dim + 1) // 2, _PACK, 2), dtype=np.int16)
        for part in parts:
            whole, errors = _rounded(vectors[part], self._scale)
            self._error = max(self._error, float(errors.max()))
            packs = _packed(whole)
            self._packs[part.start // _PACK :][: len(packs)] = packs

    def propose(
        self,
        queries: Float32[np.ndarray, "query dim"],
        lengths: Float64[np.ndarray, query],
        m: int,
    ) -> Proposals:
        """Return the m rows of largest product with each query.

        No margin is finite where a product may overflow.

        Args:
            queries: Finite.
            lengths: Of the queries.
            m: At most the number of rows.
        """
        scales = _scales(np.abs(queries).max(axis=1).astype(np.float64), lengths)
        whole, errors = _rounded(queries, scales[:, None])
        rows, sums = self._nearest(whole, m)
        # q·w - q'·w' = (q - q')·w + q'·(w - w'), by Cauchy and Schwarz; sums are rounded to
        # float32, and so are exact products, by 2^-24 of what no product exceeds.
        sizes = (lengths + errors) * (self._longest + self._error)
        margins = errors * self._longest + (lengths + errors) * self._error
        margins += sizes * 2.0**-22 + 2.0**-126
        margins[sizes >= 2.0**127] = np.inf
        return Proposals(rows, sums.min(axis=1) / (scales * self._scale), margins)

    def _nearest(
        self, queries: Int16[np.ndarray, "query even"], m: int
    ) -> tuple[Int64[np.ndarray, "query m"], Float32[np.ndarray, "query m"]]:
        """Return the m rows of largest sum, by several threads where that is worth it."""
        is_large = queries.size * self._num_rows > _ALONE
        num_parts = min(get_num_threads(), self._num_rows // max(_PACK, m)) if is_large else 1
        size = -(-self._num_rows // (max(1, num_parts) * _PACK)) * _PACK

        def search(part: slice) -> tuple[np.ndarray, np.ndarray]:
            end = min(part.stop, self._num_rows)
            shape = (len(queries), min(m, end - part.start))
            found = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32)
            dim = queries.shape[1]
            _nearest(queries, len(queries), self._packs, part.start, end, dim, shape[1], *found)
            return found

        parts = in_row_parts(search, self._num_rows, max(1, num_parts), size)
        if len(parts) == 1:
            return parts[0]
        rows, sums = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        best = np.argpartition(sums, -m, axis=1)[:, -m:]
        return np.take_along_axis(rows, best, axis=1), np.take_along_axis(sums, best, axis=1)


def pays(vectors: Float32[np.ndarray, "row dim"]) -> bool:
    """Return whether whole numbers are faster on this processor, and their sums fit 32 bits."""
    return bool(vectors.size and vectors.shape[1] <= _MAX_DIM and _is_fast())


def _scales(
    largest: Float64[np.ndarray, row], lengths: Float64[np.ndarray, row]
) -> Float64[np.ndarray, row]:
    """Return what vectors are multiplied by, of their largest number and their length."""
    is_zero = lengths == 0
    largest, lengths = np.where(is_zero, 1, largest), np.where(is_zero, 1, lengths)
    return np.minimum(_MOST / largest, _LONGEST / lengths)


def _rounded(
    vectors: Float32[np.ndarray, "row dim"], scales: float | Float64[np.ndarray, "row 1"]
) -> tuple[Int16[np.ndarray, "row even"], Float64[np.ndarray, row]]:
    """Return vectors in whole numbers, with a zero behind an odd number, and their errors."""
    whole = np.rint(vectors * np.float64(scales))
    errors = np.linalg.norm(vectors - whole / scales, axis=1)
    found = np.zeros((len(whole), whole.shape[1] + whole.shape[1] % 2), dtype=np.int16)
    found[:, : whole.shape[1]] = whole
    return found, errors


def _packed(rows: Int16[np.ndarray, "row even"]) -> Int16[np.ndarray, "pack half 16 2"]:
    """Return rows in packs, as whole.c reads them; the last one is filled with zeros."""
    filled = np.zeros((-(-len(rows) // _PACK) * _PACK, rows.shape[1]), dtype=np.int16)
    filled[: len(rows)] = rows
    return filled.reshape(-1, _PACK, rows.shape[1] // 2, 2).swapaxes(1, 2)
