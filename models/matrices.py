"""Arrays as they come from files: checked before SciPy, compiled loops, PyTorch or FAISS see them.

Some stay in their file, mapped, and could change after the check; compiled loops that read these
compare each index with its bound.

Sparse matrices have indices of 32 bits, which are half as large to hold and to read. SciPy takes 64
bits for both arrays of indices where one of them has 64, as stored files do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float16, Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.files.arrays import forget_pages
from longtail.models.native.library import (
    CSR,
    CSR_PLACES,
    F32,
    F64,
    HALF_CSR,
    I32,
    INT,
    Csr,
    RowsLike,
    function,
)

_first_odd = function("rows_first_odd", matrix=CSR_PLACES, num_columns=INT)
_largest = function("rows_largest", matrix=HALF_CSR, largest=F32.out["matrix.num_rows"])
_longest = function("rows_longest", matrix=HALF_CSR, longest=F64.out["1"])
_add_squares = function(
    "rows_add_squares", matrix=CSR, squares=F64.out["num_columns"], num_columns=INT
)
_of_columns = function(
    "rows_of_columns", matrix=CSR, places=I32["num_columns"], num_columns=INT,
    found_places=I32.out["capacity"], found_rows=I32.out["capacity"], values=F32.out["capacity"],
    capacity=INT,
)  # fmt: skip
_NO_INTS, _NO_FLOATS = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)
_CHUNK = 2**20
"""Elements at a time, so that a pass holds little memory."""
Elements: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows, columns and values of some elements of a matrix."""


@dataclass(frozen=True, slots=True)
class ArrayRule:
    """What a stored array must be.

    Attributes:
        dtypes: Names of the types that it may have.
        axes: Number of its axes.
        least: No element is below it.
        most: No element is above it.
        is_finite: Whether NaN and infinite values are refused.
    """

    dtypes: tuple[str, ...]
    axes: int
    least: int | float = -np.inf  # a checker of types takes no int for a float
    most: int | float = np.inf
    is_finite: bool = True

    MAGNITUDE: ClassVar = 1e12
    """Largest magnitude of a number: sums of larger ones might not be finite."""

    def check(self, name: str, array: np.ndarray) -> None:
        """Refuse another array.

        Args:
            name: The array's name, for the message.
            array: As it was read.
        """
        if array.dtype.name not in self.dtypes or array.ndim != self.axes:
            expected = f"{' or '.join(self.dtypes)} with {self.axes}"
            raise ValueError(
                f"{name} is {array.dtype.name} with {array.ndim} axes, expected {expected}"
            )
        if 0 in array.shape[1:]:
            raise ValueError(f"{name} has the shape {array.shape}, expected at least one column")
        flat = array.reshape(-1)
        for start in range(0, len(flat), _CHUNK):
            self._check_values(name, flat[start : start + _CHUNK])

    def _check_values(self, name: str, values: np.ndarray) -> None:
        least, most = self.least, self.most
        if self.is_finite and values.dtype.kind == "f":
            if not np.isfinite(values).all():
                raise ValueError(f"{name} has values that are not finite")
            least, most = max(least, -self.MAGNITUDE), min(most, self.MAGNITUDE)
        if least == -np.inf and most == np.inf:
            return
        is_out = (values < least) | (values > most)
        if is_out.any():
            found = values[is_out][0]
            raise ValueError(f"{name} has the value {found}, expected {least} to {most}")


def check_arrays(arrays: Mapping[str, np.ndarray], rules: Mapping[str, ArrayRule]) -> None:
    """Refuse arrays that are not the expected ones.

    Args:
        arrays: By name.
        rules: What each must be; there must be no other arrays.
    """
    if odd := sorted(arrays.keys() ^ rules.keys()):
        state = "missing" if odd[0] in rules else "unknown"
        raise ValueError(f"array {odd[0]!r} is {state}, expected {', '.join(sorted(rules))}")
    for name, rule in rules.items():
        rule.check(name, arrays[name])


def stored_csr(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    shape: tuple[int, int],
    names: tuple[str, str] = ("indices", "indptr"),
) -> csr_array:
    """Return a matrix that was stored by rows (see `checked_rows`)."""
    return csr_of(data, *checked_rows(data, indices, indptr, shape, names), shape)


def checked_rows(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    shape: tuple[int, int],
    names: tuple[str, str] = ("indices", "indptr"),
) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices and pointers of a matrix that was stored by rows, every one checked.

    SciPy's own check looks at indices only where `indptr` ends above 0, and its loops trust both.

    Args:
        data: The values.
        indices: Column of each value, rising in each row.
        indptr: Where each row begins in them, and where the last one ends.
        shape: Rows and columns.
        names: Names of the arrays of indices and pointers, for messages.

    Returns:
        Both of one type, of 32 bits where that is enough.
    """
    num_rows, num_columns = shape
    columns, pointers = names
    if len(indptr) != num_rows + 1:
        raise ValueError(f"{pointers} has {len(indptr)} values, expected {num_rows + 1}")
    if len(data) != len(indices):
        raise ValueError(f"{columns} has {len(indices)} values, expected {len(data)}")
    # Compared and not subtracted: differences of stored numbers could overflow.
    if indptr[0] != 0 or indptr[-1] != len(data) or (indptr[1:] < indptr[:-1]).any():
        raise ValueError(f"{pointers} does not rise from 0 to {len(data)}, the number of values")
    indices, indptr = of_one_type(indices, indptr, max(*shape, len(data)))
    odd = _first_odd(Rows(indptr, indices), num_columns)
    forget_pages(indices)
    if odd >= 0 and not 0 <= indices[odd] < num_columns:
        raise ValueError(f"{columns} are not all from 0 to {num_columns - 1}: {indices[odd]}")
    if odd >= 0:
        raise ValueError(f"{columns} do not rise in each row")
    return indices, indptr


class Rows(NamedTuple):
    """The arrays of a sparse matrix by rows, which take a fraction of the time of SciPy's matrix.

    Attributes:
        indptr: Where each row begins in the others, and where the last one ends.
        indices: Column of each value, rising in each row.
        data: The values.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray = np.zeros(0, dtype=np.float32)

    @classmethod
    def part_of(cls, matrix: RowsLike, rows: slice) -> Rows:
        """Return some consecutive rows of a matrix; nothing is copied."""
        return cls(matrix.indptr[rows.start : rows.stop + 1], matrix.indices, matrix.data)

    def take(self, rows: Sequence[int] | Int64[np.ndarray, row]) -> Rows:
        """Return some of the rows."""
        return Rows.joined([Rows.part_of(self, slice(row, row + 1)) for row in rows])

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Return the rows of several matrices, in their order."""
        parts = parts or [cls(np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64))]
        held = [slice(each.indptr[0], each.indptr[-1]) for each in parts]
        sizes = np.concatenate([each.indptr[1:] - each.indptr[:-1] for each in parts])
        indices = np.concatenate([x.indices[part] for x, part in zip(parts, held, strict=True)])
        data = np.concatenate([x.data[part] for x, part in zip(parts, held, strict=True)])
        return cls(np.append(0, np.cumsum(sizes)).astype(indices.dtype), indices, data)


def of_one_type(
    indices: np.ndarray, indptr: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return both with 32 bits where that is enough for the number `most`, else with 64."""
    dtype = np.int32 if most <= np.iinfo(np.int32).max else np.int64
    return indices.astype(dtype, copy=False), indptr.astype(dtype, copy=False)


def csr_of(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]
) -> csr_array:
    """Return a matrix by rows; 64 bits are for indices alone that need them.

    Nothing is checked: `stored_csr` is for what was read from a file.
    """
    indices, indptr = of_one_type(indices, indptr, max(*shape, len(data)))
    return csr_array((data, indices, indptr), shape=shape)


def transposed(matrix: csr_array) -> csr_array:
    """Return the columns of a matrix as rows."""
    return csr_array(csr_of(matrix.data, matrix.indices, matrix.indptr, matrix.shape).T)


def csr_of_parts(parts: Callable[[], Iterator[Elements]], shape: tuple[int, int]) -> csr_array:
    """Return a matrix by rows from its elements, which are held once.

    Args:
        parts: Yields them, each once, some at a time; called twice.
        shape: The matrix's shape.
    """
    counts = np.zeros(shape[0], dtype=np.int64)
    for rows, _, _ in parts():
        counts += np.bincount(rows, minlength=shape[0])
    starts = np.append(0, np.cumsum(counts))
    columns = np.empty(starts[-1], dtype=np.int32)
    data = np.empty(starts[-1], dtype=np.float32)
    free = starts[:-1].copy()  # where the next element of each row goes
    for rows, some_columns, values in parts():
        part = csr_array((values, (rows, some_columns)), shape=shape)
        sizes = np.diff(part.indptr)
        places = np.repeat(free - part.indptr[:-1], sizes) + np.arange(len(values))
        columns[places], data[places] = part.indices, part.data
        free += sizes
    found = csr_of(data, columns, starts, shape)
    found.sort_indices()
    return found


def elements_of(matrix: csr_array, places: Int64[np.ndarray, column]) -> Iterator[Elements]:
    """Yield the elements of a matrix, some rows at a time, with each column at its place.

    Columns at places below 0 are left out.
    """
    num_rows = matrix.shape[0]
    step = max(1, _CHUNK * num_rows // max(1, matrix.nnz))
    for first in range(0, num_rows, step):
        starts = matrix.indptr[first : first + step + 1]
        part = slice(starts[0], starts[-1])
        rows = np.repeat(np.arange(first, first + len(starts) - 1), np.diff(starts))
        at = places[matrix.indices[part]]
        is_kept = at >= 0
        yield rows[is_kept], at[is_kept], matrix.data[part][is_kept]


def rows_of_columns(
    matrix: Float32[csr_array, "row column"], columns: Int64[np.ndarray, asked]
) -> Float32[csr_array, "asked row"]:
    """Return some columns of a matrix as rows, by one pass over it."""
    num_rows, num_columns = matrix.shape
    places = np.full(num_columns, -1, dtype=np.int32)
    places[columns] = np.arange(len(columns))
    most = int(_of_columns(matrix, places, num_columns, _NO_INTS, _NO_INTS, _NO_FLOATS, 0))
    found = (np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.float32))
    size = min(most, _of_columns(matrix, places, num_columns, *found, most))
    at, rows, values = (array[:size] for array in found)
    order = np.argsort(at, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=len(columns)))])
    return csr_of(values[order], rows[order], indptr, (len(columns), num_rows))


def column_norms(matrix: Float32[csr_array, "row column"]) -> Float32[np.ndarray, column]:
    """Return the length of each column of a matrix."""
    squares = np.zeros(matrix.shape[1])
    _add_squares(matrix, squares, len(squares))
    found: Float32[np.ndarray, column] = np.sqrt(squares).astype(np.float32)
    return found


def check_rows(
    labels: Int64[np.ndarray, covered], num_rows: tuple[int, ...], num_labels: int
) -> None:
    """Refuse rows of labels that don't rise, are none of a catalogue, or are others than rows.

    Args:
        labels: Labels of each row.
        num_rows: Number of rows of each array that has rows.
        num_labels: The catalogue's number of labels.
    """
    is_rising = bool((np.diff(labels) > 0).all())
    is_within = labels.min(initial=0) >= 0 and labels.max(initial=0) < num_labels
    if not len(labels) or not is_rising or not is_within:
        raise ValueError("labels that are not rising rows of the catalogue")
    if set(num_rows) != {len(labels)}:
        raise ValueError(f"{num_rows} rows for {len(labels)} labels")


@dataclass(frozen=True, eq=False)
class HalfRows:
    """A sparse matrix by rows of half precision, which SciPy does not have; no value is below 0.

    Attributes:
        data: The values.
        indices: Column of each value, rising in each row.
        indptr: Where each row begins in them, and where the last one ends.
        num_columns: The matrix's number of columns.
    """

    data: Float16[np.ndarray, entry]
    indices: np.ndarray
    indptr: np.ndarray
    num_columns: int

    @classmethod
    def rounded(cls, matrix: csr_array) -> HalfRows:
        """Return a matrix with its values rounded; values that become 0 are left out."""
        found = csr_array(matrix, copy=True, dtype=np.float32)
        found.data = found.data.astype(np.float16).astype(np.float32)
        found.eliminate_zeros()
        found.sum_duplicates()  # sorts, too
        return cls(found.data.astype(np.float16), found.indices, found.indptr, found.shape[1])

    @classmethod
    def stored(
        cls,
        data: Float16[np.ndarray, entry],
        indices: np.ndarray,
        indptr: np.ndarray,
        shape: tuple[int, int],
    ) -> HalfRows:
        """Return a matrix as it came from a file."""
        bits = data.view(np.uint16)
        if bits.max(initial=0) >= np.float16(np.inf).view(np.uint16):
            raise ValueError("data has values that are not finite or below 0")
        return cls(data, *checked_rows(data, indices, indptr, shape), shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.indptr) - 1, self.num_columns

    @cached_property
    def native(self) -> Csr:
        """The arrays as compiled loops take them."""
        return HALF_CSR(self)

    def to_csr(self) -> Float32[csr_array, "row column"]:
        """Return a copy in single precision."""
        return csr_of(self.data.astype(np.float32), self.indices, self.indptr, self.shape)

    def transposed(self) -> HalfRows:
        """Return the columns as rows."""
        found = transposed(self.to_csr())
        return HalfRows(found.data.astype(np.float16), found.indices, found.indptr, found.shape[1])

    def largest_of_rows(self) -> Float32[np.ndarray, row]:
        """Return the largest value of each row; 0 where it has none."""
        found = np.zeros(self.shape[0], dtype=np.float32)
        _largest(self.native, found)
        forget_pages(self.data)
        return found

    def longest_norm(self) -> float:
        """Return the largest norm of a row."""
        squared: Float64[np.ndarray, "1"] = np.zeros(1)
        _longest(self.native, squared)
        forget_pages(self.data)
        return float(np.sqrt(squared[0]))
