"""Python functions as PyTorch's own code, for what a recording of tensors can't hold."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from functools import cache
from typing import TypeVar, cast

import torch

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
