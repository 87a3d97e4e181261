"""Functions compiled to machine code: loops over sparse arrays that numpy has no operation for."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """Return a function compiled, when first called, for the types that come.

    It releases the interpreter's lock. The machine code is kept beside the source, in the user's
    cache or in the folder that NUMBA_CACHE_DIR names; where none of them can be written to, every
    process compiles anew. A kept function doesn't notice changes in another file, so functions
    that call each other stay in one.
    """
    # Test runs wrap every function in a checker of its types, which can't be compiled.
    dispatcher = njit(nogil=True)(inspect.unwrap(function))
    with contextlib.suppress(RuntimeError):  # no folder can be written to
        dispatcher.enable_caching()
    return cast(_Function, dispatcher)
