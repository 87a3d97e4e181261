"""Inner products of queries with chosen rows, in float64: the compiled loop.

Each is summed by itself and always in the same order, so it is the same number whoever else is
asked for, where a matrix product's rounding depends on its shape.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.jit import compiled


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
    _products_with_rows(np.ascontiguousarray(queries), vectors, rows, products)
    return products


@compiled
def _products_with_rows(queries, vectors, rows, products):
    dim = queries.shape[1]
    whole = dim - dim % 8
    for i in range(len(queries)):
        query = queries[i].astype(np.float64)
        for j in range(rows.shape[1]):
            vector = vectors[rows[i, j]]
            # Eight sums side by side, as additions wait for the one before.
            a = b = c = d = e = f = g = h = 0.0
            for at in range(0, whole, 8):
                a += query[at] * np.float64(vector[at])
                b += query[at + 1] * np.float64(vector[at + 1])
                c += query[at + 2] * np.float64(vector[at + 2])
                d += query[at + 3] * np.float64(vector[at + 3])
                e += query[at + 4] * np.float64(vector[at + 4])
                f += query[at + 5] * np.float64(vector[at + 5])
                g += query[at + 6] * np.float64(vector[at + 6])
                h += query[at + 7] * np.float64(vector[at + 7])
            total = ((a + b) + (c + d)) + ((e + f) + (g + h))
            for at in range(whole, dim):
                total += query[at] * np.float64(vector[at])
            products[i, j] = np.float32(total)
