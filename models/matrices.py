"""Sparse matrices with indices of 32 bits, which are half as large to hold and to read.

SciPy takes 64 bits for both arrays of indices where one of them has so many, as stored files do.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array


def csr_of(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]
) -> csr_array:
    """Return a matrix by rows; 64 bits are for indices alone that need them."""
    most = max(*shape, len(data))
    dtype = np.int32 if most <= np.iinfo(np.int32).max else np.int64
    indices, indptr = (x.astype(dtype, copy=False) for x in (indices, indptr))
    return csr_array((data, indices, indptr), shape=shape)


def transposed(matrix: csr_array) -> csr_array:
    """Return the columns of a matrix as rows."""
    return csr_array(csr_of(matrix.data, matrix.indices, matrix.indptr, matrix.shape).T)
