"""The inner products of `inner_products.py`, to the bit, by PyTorch on whichever device.

As in `native/ranking.c`: products of float32 numbers are exact in float64, eight sums go side by
side, then come together in pairs, and what is left of a row is added last.
"""

from __future__ import annotations

import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

_MAX_TERMS = 2**23
"""float64 products held at a time: 64 MiB, and as much again for their sums."""


def products_on_device(
    queries: Float32[Tensor, "query given"],
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
    asked = torch.arange(len(rows), device=rows.device).repeat_interleave(rows.shape[1])
    size = max(1, _MAX_TERMS // dim)
    parts = zip(torch.split(asked, size), torch.split(rows.flatten(), size), strict=True)
    found = [_summed(queries[x, :dim].double() * vectors[y, :dim]) for x, y in parts]
    return torch.cat(found).view(rows.shape)


def _summed(terms: Float64[Tensor, "pair dim"]) -> Float32[Tensor, pair]:
    whole = terms.shape[1] // 8 * 8
    total = terms.new_zeros(len(terms))
    if whole:
        # Down a column a cumulative sum adds one number after another; along a row it need not.
        sums = terms[:, :whole].reshape(len(terms), whole // 8, 8).cumsum(1)[:, -1]
        for _ in range(3):
            sums = sums[:, ::2] + sums[:, 1::2]
        total = sums[:, 0]
    for column in range(whole, terms.shape[1]):
        total = total + terms[:, column]
    return total.float()
