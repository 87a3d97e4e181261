"""Calls of the C functions: the library for this processor, and what may be passed to it.

A function releases the interpreter's lock while it runs. Arrays are passed as pointers, so their
type, layout, shape and writability are checked here, where their addresses are taken.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from longtail.models.native import build

Converter = Callable[[Any], Any]
"""Makes what a function takes out of an argument, or raises TypeError or ValueError."""


class _Axis(NamedTuple):
    """The length of an axis: `factor` times the size of a name and `more`; without a name `more`.

    Written as `6`, `num_rows`, `num_rows+1`, `2*num_nodes+1`, `features.num_rows`.
    """

    factor: int
    name: str
    more: int

    @classmethod
    def read(cls, text: str) -> _Axis:
        if text.isdecimal():
            return cls(0, "", int(text))
        factor, name, more = re.fullmatch(r"(?:(\d+)\*)?([\w.]+)(?:\+(\d+))?", text).groups()  # type: ignore[union-attr]
        return cls(int(factor or 1), name, int(more or 0))


class ArrayOf:
    """Passes arrays of one type as a pointer to their first element.

    `F32["num_rows k"]` has these axes, whose lengths are integers among the other arguments or, for
    other names, the same wherever the name stands. `F32.out` is written to. Without axes, any shape
    is passed.
    """

    def __init__(self, dtype: Any, axes: str = "", *, is_written: bool = False) -> None:
        """Name the type, the axes, and whether the function writes."""
        self.dtype, self.axes, self.is_written = np.dtype(dtype), axes, is_written
        self._type = self.dtype.str
        self._names = axes.split()
        self._lengths = tuple(map(_Axis.read, self._names))

    def __getitem__(self, axes: str) -> ArrayOf:
        """Return the same for arrays with these axes."""
        return ArrayOf(self.dtype, axes, is_written=self.is_written)

    @property
    def out(self) -> ArrayOf:
        """The same for arrays that are written to."""
        return ArrayOf(self.dtype, self.axes, is_written=True)

    def __call__(self, array: np.ndarray, sizes: dict[str, int] | None = None) -> int:
        """Return the address of the elements.

        Args:
            array: What to pass.
            sizes: Lengths of axes by name; new names are added.
        """
        described = array.__array_interface__  # one look: an attribute costs as much as a loop
        if described["typestr"] != self._type or described["strides"] is not None:
            layout = "" if described["strides"] is None else ", not contiguous"
            raise TypeError(f"an array of {array.dtype}{layout}, expected {self._type} in C order")
        address: int
        address, is_read_only = described["data"]
        if self.is_written and is_read_only:
            raise ValueError("a read-only array, expected one that can be written to")
        if self._lengths and sizes is not None:
            shape = described["shape"]
            if shape != tuple([sizes.get(name) for name in self._names]):  # most are seen by this
                self._check_shape(shape, sizes)
        return address

    def _check_shape(self, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
        """Refuse another shape; a name without a size gets that of the given length."""
        expected = []
        given_lengths = shape + (0,) * (len(self._lengths) - len(shape))
        for (factor, name, more), given in zip(self._lengths, given_lengths, strict=False):
            size = sizes.setdefault(name, (given - more) // factor) if name else 0
            expected.append(factor * size + more)
        if (*expected,) != shape:
            raise ValueError(f"an array of shape {shape}, expected {(*expected,)} ({self.axes})")


F16, F32, F64 = ArrayOf(np.float16), ArrayOf(np.float32), ArrayOf(np.float64)
I16, I32 = ArrayOf(np.int16), ArrayOf(np.int32)
I64, U64 = ArrayOf(np.int64), ArrayOf(np.uint64)
I8, U8, BOOL = ArrayOf(np.int8), ArrayOf(np.uint8), ArrayOf(np.bool_)
GROWN = ArrayOf(np.int64, "array 2", is_written=True)
"""Takes what a function allocates: `grown` in kernels.h, see `taken`."""
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

    def __init__(self, values: ArrayOf | None) -> None:
        """Name the type; None: the values are not read."""
        self.values = values
        self._sized = values and values["entry"]

    def __call__(self, matrix: RowsLike | Csr) -> Csr:
        """Return the arrays of a matrix for a call; kept by who passes a matrix often."""
        if isinstance(matrix, Csr):
            return matrix
        indptr, indices, data = matrix.indptr, matrix.indices, matrix.data
        index, sizes = I32 if indptr.dtype == np.int32 else I64, {"entry": len(indices)}
        values = self._sized(data, sizes) if self._sized else None
        found = Csr(index(indptr), index(indices), values, index is I64, len(indptr) - 1)
        found.arrays = (indptr, indices, data)  # they live as long as their addresses
        return found


csr = CSR = CsrOf(F32)
HALF_CSR = CsrOf(F16)
CSR_PLACES = CsrOf(None)


class Signature:
    """How the arguments of a function, or the fields of a struct, are passed.

    Attributes:
        parameters: How each is passed, by name, in the order of C.
    """

    def __init__(self, parameters: Mapping[str, Converter]) -> None:
        """Sort out the arrays, which are checked when all sizes are known."""
        self.parameters = parameters
        numbered = [(i, name, convert) for i, (name, convert) in enumerate(parameters.items())]
        self._arrays = [(i, name, x) for i, name, x in numbered if isinstance(x, ArrayOf)]
        self._others = [each for each in numbered if not isinstance(each[2], ArrayOf)]

    def passed(self, arguments: Sequence[Any], where: str) -> list[Any]:
        """Return the converted arguments.

        Args:
            arguments: In the order of the parameters.
            where: Name of the function or struct, for messages.
        """
        found = list(arguments)
        if len(found) != len(self.parameters):
            raise TypeError(f"{where}: {len(found)} arguments, expected {len(self.parameters)}")
        sizes: dict[str, int] = {}
        for i, name, convert in self._others:
            found[i] = convert(found[i])
            if convert is INT:
                sizes[name] = found[i]
            elif hasattr(found[i], "num_rows"):
                sizes[f"{name}.num_rows"] = found[i].num_rows
        for i, name, into in self._arrays:
            try:
                found[i] = into(found[i], sizes)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{where}: {name} is {error}") from None
        return found


class RecordOf:
    """Passes objects, such as named tuples of arrays, as a pointer to a C struct."""

    def __init__(self, name: str, /, **fields: Converter) -> None:
        """Say how each attribute is passed, in the order of the fields of the struct."""
        self.name, self.signature = name, Signature(fields)
        kinds = [(field, _kind(convert)) for field, convert in fields.items()]
        self.struct: Any = type("Record", (ctypes.Structure,), {"_fields_": kinds})

    def __call__(self, source: Any) -> ctypes.Structure:
        """Return the struct of an object, or the struct itself; kept by who passes it often."""
        if isinstance(source, ctypes.Structure):
            return source
        values = [getattr(source, name) for name in self.signature.parameters]
        passed = self.signature.passed(values, self.name)
        pointed = [ctypes.pointer(x) if isinstance(x, ctypes.Structure) else x for x in passed]
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


DECLARED: dict[str, Signature] = {}
"""What each function takes; the contract tests compare it with the C sources."""


def function(name: str, /, **parameters: Converter) -> Callable[..., int]:
    """Return a C function that returns an int64: a number from 0, or `OUT_OF_MEMORY`.

    Args:
        name: Name of the C function.
        parameters: How each argument is passed, by its name in C and in the same order: arrays as
            pointers, matrices and records as pointers to structs, ints as int64 and floats as
            double.

    Returns:
        The function, which takes its arguments by position. It raises MemoryError where memory was
        missing, and the errors of `Signature.passed`.
    """
    native = getattr(_library(), name)
    native.restype = ctypes.c_int64
    native.argtypes = [_kind(convert) for convert in parameters.values()]
    signature = DECLARED[name] = Signature(parameters)

    def call(*arguments: Any) -> int:
        found: int = native(*signature.passed(arguments, name))
        if found == OUT_OF_MEMORY:
            raise MemoryError(f"{name}: not enough memory")
        return found

    call.__name__ = name
    return call


OUT_OF_MEMORY = -(2**62)


class Grown(NamedTuple):
    """What to keep from a function that allocates: `grown` in kernels.h.

    Attributes:
        dtype: The elements' dtype.
        width: Elements of a row; 0 for arrays of one axis.
    """

    dtype: Any
    width: int = 0


def taken(buffers: np.ndarray, kinds: Sequence[Grown]) -> list[np.ndarray]:
    """Return read-only copies of arrays that a C function allocated, and free these.

    Args:
        buffers: For each array its address and its number of elements: int64, (array, 2).
        kinds: Type and width of each.
    """
    found = []
    for (address, size), (dtype, width) in zip(buffers.tolist(), kinds, strict=True):
        held = ctypes.string_at(address, size * np.dtype(dtype).itemsize) if size else b""
        array = np.frombuffer(held, dtype=dtype)
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
