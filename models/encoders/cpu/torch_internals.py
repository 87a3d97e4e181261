"""Weights in the order in which oneDNN multiplies them, and how they are held."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor

_PACKED_FOR = 512
"""Rows that the order of packed weights is chosen for; it is the same for fewer and for more."""


def can_pack(dtype: torch.dtype) -> bool:
    """Whether weights are in bfloat16, and oneDNN multiplies in it here."""
    has_it = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return dtype == torch.bfloat16 and has_it is not None and bool(has_it())


def packed(weight: Float[Tensor, "out dim"]) -> Tensor:
    """Return a copy of weights in the order in which oneDNN multiplies them.

    Else it puts them in that order at every call, which takes a fifth of the time of a short text.
    `torch.ops.mkldnn._linear_pointwise` takes them.
    """
    in_order: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR)
    return in_order


def held_outside_of_python(tensors: Iterable[Tensor]) -> Any:
    """Return a list of tensors that is not Python's, which PyTorch's own code takes for one.

    Where Python alone holds a tensor, PyTorch asks for Python's lock whenever the last reference of
    its own goes. In a pass through an encoder that would be after the last use of each weight: a
    hundred times.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "deprecated", as `torch.jit.trace`
        return torch.jit.script(list(tensors))


_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """Return a function as PyTorch's own code, with its branches and its empty lists."""
    return cast("_Function", _scripted(function))


@cache
def _scripted(function: Callable[..., object]) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "deprecated", as `torch.jit.trace`
        # Test runs wrap every function in a checker of its types, which can't be compiled.
        return torch.jit.script(inspect.unwrap(function))
