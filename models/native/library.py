"""Calls of the C functions: the library for this processor, and what may be passed to it.

A function releases the interpreter's lock while it runs. Arrays are passed as pointers, so their
type and layout are checked here; shapes are the callers' to get right.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from longtail.models.native import build

Converter = Callable[[Any], Any]
"""Makes what a function takes out of an argument, or raises TypeError."""


class ArrayOf:
    """Passes arrays of one type as a pointer to their first element."""

    def __init__(self, dtype: Any) -> None:
        """Name the type."""
        self._type = np.dtype(dtype).str

    def __call__(self, array: np.ndarray) -> int:
        """Return the address of the elements.

        Raises:
            TypeError: The array has another type, or its elements are not one after the other.
        """
        described = (
            array.__array_interface__
        )  # one look: an attribute costs as much as a short loop
        if described["typestr"] != self._type or described["strides"] is not None:
            layout = "" if described["strides"] is None else ", not contiguous"
            raise TypeError(f"an array of {array.dtype}{layout}, expected {self._type} in C order")
        address: int = described["data"][0]
        return address


F16, F32, F64 = ArrayOf(np.float16), ArrayOf(np.float32), ArrayOf(np.float64)
I16, I32 = ArrayOf(np.int16), ArrayOf(np.int32)
I64, U64 = ArrayOf(np.int64), ArrayOf(np.uint64)
I8, U8, BOOL = ArrayOf(np.int8), ArrayOf(np.uint8), ArrayOf(np.bool_)
INT: Converter = int
FLOAT: Converter = float


class Csr(ctypes.Structure):
    """The arrays of a sparse matrix by rows, of float32 or float16: `csr` in kernels.h."""

    _fields_ = (
        ("indptr", ctypes.c_void_p),
        ("indices", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("is_wide", ctypes.c_int64),
        ("num_rows", ctypes.c_int64),
    )


@runtime_checkable  # the test run checks annotations by isinstance
class RowsLike(Protocol):
    """Has the arrays of a sparse matrix by rows."""

    @property
    def data(self) -> np.ndarray:
        """The values."""

    @property
    def indices(self) -> np.ndarray:
        """Column of each value."""

    @property
    def indptr(self) -> np.ndarray:
        """Where each row begins in them, and where the last one ends."""


class CsrOf:
    """Passes matrices by rows with values of one type."""

    def __init__(self, values: ArrayOf) -> None:
        """Name the type."""
        self._values = values

    def __call__(self, matrix: RowsLike | Csr) -> Csr:
        """Return the arrays of a matrix for a call; kept by who passes a matrix often.

        Raises:
            TypeError: Its values have another type, or its arrays of indices different ones.
        """
        if isinstance(matrix, Csr):
            return matrix
        indptr, indices, data = matrix.indptr, matrix.indices, matrix.data
        index = I32 if indptr.dtype == np.int32 else I64
        addresses = (index(indptr), index(indices), self._values(data))
        found = Csr(*addresses, index is I64, len(indptr) - 1)
        found.arrays = (indptr, indices, data)  # they live as long as their addresses
        return found


csr = CSR = CsrOf(F32)
HALF_CSR = CsrOf(F16)


class RecordOf:
    """Passes objects, such as named tuples of arrays, as a pointer to a C struct."""

    def __init__(self, **fields: Converter) -> None:
        """Say how each attribute is passed, in the order of the struct's fields."""
        self._fields = fields
        kinds = [(name, _kind(convert)) for name, convert in fields.items()]
        self.struct: Any = type("Record", (ctypes.Structure,), {"_fields_": kinds})

    def __call__(self, source: Any) -> ctypes.Structure:
        """Return the struct of an object, or the struct itself; kept by who passes it often.

        Raises:
            TypeError: An array has another type or layout than its field.
        """
        if isinstance(source, ctypes.Structure):
            return source
        values = [convert(getattr(source, name)) for name, convert in self._fields.items()]
        pointed = [ctypes.pointer(x) if isinstance(x, ctypes.Structure) else x for x in values]
        found: ctypes.Structure = self.struct(*pointed)
        found.source = source  # its arrays live as long as their addresses
        return found


def _kind(convert: Converter) -> Any:
    if isinstance(convert, ArrayOf):
        return ctypes.c_void_p
    if convert is FLOAT:
        return ctypes.c_double
    if convert is INT:
        return ctypes.c_int64
    return ctypes.POINTER(convert.struct if isinstance(convert, RecordOf) else Csr)


def function(name: str, *parameters: Converter) -> Callable[..., int]:
    """Return a C function that returns an int64: a number from 0, or `OUT_OF_MEMORY`.

    Args:
        name: Of the C function.
        parameters: How each argument is passed: arrays as pointers, matrices and records as
            pointers to structs, ints as int64 and floats as double.

    Returns:
        The function. It raises MemoryError where memory was missing.
    """
    native = getattr(_library(), name)
    native.restype = ctypes.c_int64
    native.argtypes = [_kind(convert) for convert in parameters]

    def call(*arguments: Any) -> int:
        found: int = native(*[into(x) for into, x in zip(parameters, arguments, strict=True)])
        if found == OUT_OF_MEMORY:
            raise MemoryError(f"{name}: not enough memory")
        return found

    call.__name__ = name
    return call


OUT_OF_MEMORY = -(2**62)


class Grown(NamedTuple):
    """What to keep from a function that allocates: `grown` in kernels.h.

    Attributes:
        dtype: Of the elements.
        width: Elements of a row; 0 for arrays of one axis.
    """

    dtype: Any
    width: int = 0


def taken(buffers: np.ndarray, kinds: Sequence[Grown]) -> list[np.ndarray]:
    """Return copies of arrays that a C function allocated, and free these.

    Args:
        buffers: For each array its address and its number of elements: int64, (array, 2).
        kinds: Type and width of each.
    """
    found = []
    for (address, size), (dtype, width) in zip(buffers.tolist(), kinds, strict=True):
        array = np.empty(size, dtype=dtype)
        if size:
            ctypes.memmove(array.ctypes.data, address, array.nbytes)
        found.append(array.reshape(-1, width) if width else array)
        _library().longtail_free(ctypes.c_void_p(address))
    return found


_loaded: list[ctypes.CDLL] = []


def _library() -> ctypes.CDLL:
    if not _loaded:
        names = build.levels()
        if not build.library_path(build.FOLDER, names[0]).exists():
            build.build()
        lowest = ctypes.CDLL(str(build.library_path(build.FOLDER, names[0])))
        level = f"v{lowest.longtail_level()}"
        lowest.longtail_free.argtypes = [ctypes.c_void_p]
        best = (
            ctypes.CDLL(str(build.library_path(build.FOLDER, level))) if level in names else lowest
        )
        best.longtail_free.argtypes = [ctypes.c_void_p]
        _loaded.append(best)
    return _loaded[0]
