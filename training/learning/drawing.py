"""Draws in proportion to weights, also where PyTorch may only compute deterministically.

On a GPU, PyTorch's sums along a row are not deterministic, so `cumsum` of floating-point numbers,
and `multinomial`, which uses it, raise when training asks for reproducible results. Sums of
integers are exact in any order: there the weights are rounded to multiples of 2^-52.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

_UNITS = 2.0**52


def cumulative_sums(shares: Float64[Tensor, "row entry"]) -> Float64[Tensor, "row entry"]:
    """Return the sums of each row's entries up to each entry, which never fall.

    Args:
        shares: At least 0; those of a row sum up to about 1.
    """
    if _is_on_cpu(shares):
        return shares.cumsum(dim=1)
    return (shares * _UNITS).round().long().cumsum(dim=1).double() / _UNITS


def draw_with_replacement(
    weights: Float[Tensor, "row entry"], num_draws: int, generator: torch.Generator
) -> Int64[Tensor, "row draw"]:
    """Draw entries of each row in proportion to their weights, independently.

    Args:
        weights: At least 0, and not all 0 in any row.
        num_draws: Of each row.
        generator: On the device of the weights.
    """
    if _is_on_cpu(weights):
        return torch.multinomial(weights, num_draws, replacement=True, generator=generator)
    exact = weights.double()
    sums = cumulative_sums(exact / exact.sum(dim=1, keepdim=True))
    places = torch.rand(
        (len(weights), num_draws), generator=generator, device=weights.device, dtype=torch.float64
    )
    # The first entry whose sum is above the place: never one of weight 0.
    found = torch.searchsorted(sums, places * sums[:, -1:], right=True)
    return found.clamp(max=weights.shape[1] - 1)


def _is_on_cpu(values: Tensor) -> bool:
    return values.device.type == "cpu"
