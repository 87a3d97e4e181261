"""The exact k best rows of an index: float32 proposes with an error bound, float64 decides.

The same code runs on a CPU and on a GPU, where all but the k best of each query stays. A search of
m > k candidates is enough for a query when its k-th exact score is above the m-th proposal by more
than rounding can explain; else m grows fourfold.

`products_on_device` gives the inner products of `top_k.py`, to the bit: products of float32 numbers
are exact in float64, eight sums go side by side, then come together in pairs, and the rest of a row
is added last, as in `native/ranking.c`.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from longtail.models.ranking.top_k import NO_LABEL

SLACK = 16
"""Candidates beyond k in the first search; more are asked for when ties need them."""
_MAX_CANDIDATES = 2**22
"""Candidates that are scored exactly at a time: 16 MiB of scores, 32 of rows."""
_GROUPS = 128
"""Parts of a long row of scores, the best of each of which are found side by side."""
_GROUPED = ("cuda",)
"""Kinds of devices where that is faster."""


@runtime_checkable  # the test run checks annotations by isinstance
class Scores(Protocol):
    """The scores of all rows of an index for some queries: near ones, and exact ones of a few.

    Attributes:
        num_rows: The index's number of rows.
        margins: How far a proposal of each query may lie from its exact score.
    """

    num_rows: int
    margins: Float64[Tensor, query]

    def propose(
        self, queries: Int64[Tensor, asked], m: int
    ) -> tuple[Float32[Tensor, "asked m"], Int64[Tensor, "asked m"]]:
        """Return the m largest near scores of these queries, falling, and their rows."""
        ...

    def exact(
        self, queries: Int64[Tensor, asked], rows: Int64[Tensor, "asked m"]
    ) -> Float32[Tensor, "asked m"]:
        """Return the exact scores of given rows."""
        ...


def certified_top(
    scores: Scores, k: int
) -> tuple[Int64[Tensor, "query k"], Float32[Tensor, "query k"]]:
    """Return the k best rows of each query and their exact scores; ties by the smaller row.

    Where fewer rows can be scored, rows are `NO_LABEL` and scores -inf.
    """
    margins, size = scores.margins, scores.num_rows
    shape = (len(margins), k)
    best_rows = torch.full(shape, NO_LABEL, dtype=torch.int64, device=margins.device)
    best_scores = torch.full(shape, -torch.inf, device=margins.device)
    queries = torch.arange(len(margins), device=margins.device)
    k, m = min(k, size), min(size, k + SLACK)
    while len(queries) and m:
        unfinished = [queries[:0]]
        for part in torch.split(queries, max(1, _MAX_CANDIDATES // m)):
            if m == size:  # every row is a candidate: nothing to search for
                rows = torch.arange(size, device=margins.device).expand(len(part), size)
            else:
                proposed, rows = scores.propose(part, m)
                rows, order = rows.sort(dim=1)
            exact, order = scores.exact(part, rows).sort(dim=1, descending=True, stable=True)
            best_scores[part, :k] = exact[:, :k]
            best_rows[part, :k] = rows.gather(1, order[:, :k])
            if m < size:
                # Proposals fall, and none is off by more than the margin: so no row beyond the
                # m-th has an exact score above the m-th proposal plus the margin.
                is_done = exact[:, k - 1] > proposed[:, -1] + margins[part]
                if not bool(is_done.all()):
                    unfinished.append(part[~is_done])
        queries, m = torch.cat(unfinished), min(size, 4 * m)
    best_rows[best_scores == -torch.inf] = NO_LABEL
    return best_rows, best_scores


def largest(
    scores: Float32[Tensor, "query row"], m: int
) -> tuple[Float32[Tensor, "query m"], Int64[Tensor, "query m"]]:
    """Return the m largest scores of each query, falling, and their rows.

    On a GPU, a long row is divided into groups, each of which is searched by a block of its own.
    """
    size = scores.shape[1] // _GROUPS
    if size < 4 * m or scores.device.type not in _GROUPED:
        best = scores.topk(m, dim=1)
        return best.values, best.indices
    found = scores[:, : size * _GROUPS].reshape(-1, _GROUPS, size).topk(m, dim=2)
    starts = torch.arange(0, size * _GROUPS, size, device=scores.device)[:, None]
    rest = torch.arange(size * _GROUPS, scores.shape[1], device=scores.device)
    values = torch.cat([found.values.flatten(1), scores[:, size * _GROUPS :]], dim=1)
    rows = torch.cat([(found.indices + starts).flatten(1), rest.expand(len(scores), -1)], dim=1)
    best = values.topk(m, dim=1)
    return best.values, rows.gather(1, best.indices)


def product_error() -> float:
    """Return the relative error of one product of float32 numbers, beyond float32's own rounding.

    0, unless the process lets PyTorch round factors to TensorFloat-32 or bfloat16.
    """
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # set by PyTorch's newer interface, of which this one can't tell
        precision = "medium"
    return {"highest": 0.0, "high": 2.0**-9}.get(precision, 2.0**-6)


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
