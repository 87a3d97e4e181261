"""Inner products of queries with chosen rows, in float64.

Each is summed by itself and always in the same order, so it is the same number whoever else is
asked for, where a matrix product's rounding depends on its shape.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.native.library import F32, I64, INT, function

_products_with_rows = function(
    "products_with_rows", queries=F32["num_queries dim"], num_queries=INT, dim=INT,
    vectors=F32["covered stored"], stored=INT, rows=I64["num_queries m"], m=INT,
    products=F32.out["num_queries m"],
)  # fmt: skip


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
    queries, rows = np.ascontiguousarray(queries), np.ascontiguousarray(rows)
    _products_with_rows(
        queries, *queries.shape, vectors, vectors.shape[1], rows, rows.shape[1], products
    )
    return products
