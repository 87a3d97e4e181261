"""Functions compiled to machine code: loops over sparse arrays that numpy has no operation for."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """Return a function compiled, when first called, for the types that come.

    It releases the interpreter's lock. The machine code is kept beside the source, in the user's
    cache or in the folder that NUMBA_CACHE_DIR names; where none of them can be written to, every
    process compiles anew. A kept function doesn't notice changes in another file: after a change
    in one, delete the kept code of the files that call it (`__pycache__/*.nb?`).
    """
    # Test runs wrap every function in a checker of its types, which can't be compiled.
    return cast(_Function, _kept(njit(nogil=True)(inspect.unwrap(function))))


def vectorised(function: _Function) -> _Function:
    """Return a function compiled (see `compiled`) so that its loops can be vector instructions.

    For that, sums may be taken in another order, the same in every call on one machine, and a
    division by zero gives infinity.
    """
    compile_it = njit(nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy")
    return cast(_Function, _kept(compile_it(inspect.unwrap(function))))


def _kept(dispatcher: Any) -> Any:
    with contextlib.suppress(RuntimeError):  # no folder can be written to
        dispatcher.enable_caching()
    return dispatcher
