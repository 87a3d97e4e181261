"""Rows of a sparse matrix, gathered in plain arrays that grow in place."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array


class SparseRows:
    """Gathers a CSR matrix of ones row by row; its arrays are all that it holds."""

    def __init__(self) -> None:
        """Start without rows."""
        self._indices = array("i")
        self._sizes = array("i")

    def add(self, columns: Iterable[int]) -> None:
        """Append a row of ones at these columns."""
        before = len(self._indices)
        self._indices.extend(columns)
        self._sizes.append(len(self._indices) - before)

    def matrix(self, num_columns: int) -> Float32[csr_array, "row column"]:
        """Return the matrix, columns rising in each row; nothing can be appended after."""
        indices, num_rows = _view(self._indices), len(self._sizes)
        # 32 bits wherever they are enough, as scikit-learn wants them.
        starts = np.zeros(num_rows + 1, np.int32 if len(indices) < 2**31 else np.int64)
        np.cumsum(_view(self._sizes), out=starts[1:])
        values = np.ones(len(indices), np.float32)
        matrix = csr_array((values, indices, starts), shape=(num_rows, num_columns))
        matrix.sort_indices()
        return matrix


def _view(values: array[int]) -> np.ndarray:
    return np.frombuffer(values, dtype=np.int32) if values else np.empty(0, dtype=np.int32)
