"""Every call of PyTorch that is private or deprecated, and what would replace it.

As of PyTorch 2.13. Where one is gone, `longtail.models.encoders.cpu.backend` falls back on the
encoder.

- `torch.jit.script` in `compiled`, deprecated: `torch.export` and a package of AOTInductor, which
  needs a C++ compiler where it is made, or a C++ extension.
- `torch.jit.script` in `held_outside_of_python`, deprecated: nothing; a package of AOTInductor
  holds its weights itself.
- `torch.ops.mkldnn._is_mkldnn_bf16_supported` in `can_pack`, private: `torch.cpu.get_capabilities`
  with `torch.backends.mkldnn.is_available`.
- `torch.ops.mkldnn._reorder_linear_weight` in `packed` and `_linear_pointwise` in `linear` and
  `linear_gelu`, private: AOTInductor with frozen weights, which calls the same two.
"""

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

_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """Return a function as PyTorch's own code, with its branches and loops, without Python."""
    return cast("_Function", _scripted(function))


@cache
def _scripted(function: Callable[..., object]) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is deprecated
        # Test runs wrap every function in a checker of its types, which can't be compiled.
        return torch.jit.script(inspect.unwrap(function))


def held_outside_of_python(tensors: Iterable[Tensor]) -> Any:
    """Return the tensors as a TorchScript list, so that C++ holds a reference of its own to each.

    Otherwise PyTorch takes Python's lock each time a weight's last C++ reference goes: about a
    hundred times a pass.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is deprecated
        return torch.jit.script(list(tensors))


def can_pack(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies weights of a type here: float32, or bfloat16 by instruction."""
    if dtype == torch.float32:
        return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    has_it = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return dtype == torch.bfloat16 and has_it is not None and bool(has_it())


def packed(weight: Float[Tensor, "out dim"]) -> Tensor:
    """Return a copy of weights in the order in which oneDNN multiplies them, for `linear`.

    Otherwise it puts them in that order at every call, which takes a fifth of the time of a short
    text.
    """
    in_order: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR)
    return in_order


def linear(  # pragma: no cover  # no coverage of what PyTorch compiles
    inputs: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """Return inputs W^T + b, to be compiled; (row, dim), packed (out, dim), (out,): (row, out)."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return product


def linear_gelu(  # pragma: no cover  # no coverage of what PyTorch compiles
    inputs: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """Return gelu(inputs W^T + b), the exact one with erf; as `linear`."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "gelu", [], "none")
    return product
