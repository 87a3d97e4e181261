"""Rows of a sparse matrix, gathered in plain arrays that grow in place."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float32, Int32, Int64
from scipy.sparse import csr_array


class SparseRows:
    """Gathers a CSR matrix row by row, or many rows at once; its arrays are all that it holds."""

    def __init__(self) -> None:
        """Start without rows."""
        self._indices = array("i")
        self._values = array("f")
        self._sizes = array("i")

    @property
    def num_rows(self) -> int:
        """Rows gathered so far."""
        return len(self._sizes)

    def add(self, columns: Iterable[int]) -> None:
        """Append a row of ones at these columns."""
        before = len(self._indices)
        self._indices.extend(columns)
        self._sizes.append(len(self._indices) - before)

    def extend(
        self,
        sizes: Int32[np.ndarray, row],
        indices: Int32[np.ndarray, entry],
        values: Float32[np.ndarray, entry] | None = None,
    ) -> None:
        """Append rows.

        Args:
            sizes: Entries of each row.
            indices: Their columns, row after row.
            values: Their values; ones by default. Either all rows have them or none.
        """
        self._sizes.frombytes(sizes.data.cast("B"))
        self._indices.frombytes(indices.data.cast("B"))
        if values is not None:
            self._values.frombytes(values.data.cast("B"))

    def matrix(self, num_columns: int) -> Float32[csr_array, "row column"]:
        """Return the matrix, columns rising in each row; nothing can be appended after."""
        num_entries = len(self._indices)
        indices = _view(self._indices, np.int32)
        ones = not self._values
        values = np.ones(num_entries, np.float32) if ones else _view(self._values, np.float32)
        # 32 bits wherever they are enough, as scikit-learn wants them.
        starts = np.zeros(self.num_rows + 1, np.int32 if num_entries < 2**31 else np.int64)
        np.cumsum(_view(self._sizes, np.int32), out=starts[1:])
        matrix = csr_array((values, indices, starts), shape=(self.num_rows, num_columns))
        matrix.sort_indices()
        return matrix


def digests_of_rows(
    sizes: Int32[np.ndarray, row],
    indices: Int32[np.ndarray, entry],
    values: Float32[np.ndarray, entry],
) -> Int64[np.ndarray, row]:
    """Return 64 bits for each row that are the same for the same entries, in whatever order.

    The sum of the mixed bits of every (column, value) pair; the mixing is that of splitmix64
    (Steele, Lea & Flood 2014, figure 15).
    """
    pairs = (indices.astype(np.uint64) << np.uint64(32)) | values.view(np.uint32)
    pairs += np.uint64(0x9E3779B97F4A7C15)
    pairs = (pairs ^ (pairs >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    pairs = (pairs ^ (pairs >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    pairs ^= pairs >> np.uint64(31)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(pairs)])  # modulo 2^64
    ends = np.cumsum(sizes)
    digests: Int64[np.ndarray, row] = (sums[ends] - sums[ends - sizes]).view(np.int64)
    return digests


def _view(values: array[int] | array[float], dtype: type) -> np.ndarray:
    return np.frombuffer(values, dtype=dtype) if values else np.empty(0, dtype=dtype)
