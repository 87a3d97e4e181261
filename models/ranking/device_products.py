"""The inner products of `inner_products.py`, to the bit, by PyTorch on whichever device.

As in `native/ranking.c`: products of float32 numbers are exact in float64, eight sums go side by
side, then come together in pairs, and what is left of a row is added last.
"""

from __future__ import annotations

from jaxtyping import Float32, Int64
from torch import Tensor

_MAX_TERMS = 2**23
"""float64 products held at a time: 64 MiB, and as much again for their sums."""


def products_on_device(
    queries: Float32[Tensor, "query stored"],
    vectors: Float32[Tensor, "covered stored"],
    rows: Int64[Tensor, "query m"],
    dim: int,
) -> Float32[Tensor, "query m"]:
    """Return the inner product of each query with each of its rows, rounded to float32 once.

    Args:
        queries: What to multiply.
        vectors: All rows.
        rows: Which rows to multiply each query with.
        dim: Columns that are multiplied.
    """
    sizes = (max(1, _MAX_TERMS // (dim * max(1, rows.shape[1]))), max(1, _MAX_TERMS // dim))
    products = queries.new_empty(rows.shape)
    for start in range(0, len(rows), sizes[0]):
        queried = slice(start, start + sizes[0])
        for left in range(0, rows.shape[1], sizes[1]):
            some = slice(left, left + sizes[1])
            products[queried, some] = _summed(queries[queried], vectors, rows[queried, some], dim)
    return products


def _summed(
    queries: Float32[Tensor, "query stored"],
    vectors: Float32[Tensor, "covered stored"],
    rows: Int64[Tensor, "query m"],
    dim: int,
) -> Float32[Tensor, "query m"]:
    whole = dim - dim % 8
    terms = vectors[rows][..., :dim].double() * queries[:, None, :dim].double()
    total = terms.new_zeros(rows.shape)
    if whole:
        # Down a column a cumulative sum adds one number after another; along a row it need not.
        lanes = terms[..., :whole].reshape(*rows.shape, whole // 8, 8)
        sums = lanes.cumsum(-2)[..., -1, :]
        for _ in range(3):
            sums = sums[..., ::2] + sums[..., 1::2]
        total = sums[..., 0]
    for column in range(whole, dim):
        total = total + terms[..., column]
    return total.float()
