"""Arrays as they come from files: checked before SciPy, compiled loops, PyTorch or FAISS see them.

Sparse matrices have indices of 32 bits, which are half as large to hold and to read. SciPy takes 64
bits for both arrays of indices where one of them has so many, as stored files do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64
from scipy.sparse import csr_array

_CHUNK = 2**20
"""Elements checked at a time, so that a check holds little memory."""


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

    def check(self, name: str, array: np.ndarray) -> None:
        """Refuse another array.

        Args:
            name: Of the array, for the message.
            array: As it was read.

        Raises:
            ValueError: It has another type or number of axes, no columns, or a value out of bounds.
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
        if self.is_finite and values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ValueError(f"{name} has values that are not finite")
        is_out = (values < self.least) | (values > self.most)
        if is_out.any():
            found = values[is_out][0]
            raise ValueError(f"{name} has the value {found}, expected {self.least} to {self.most}")


def check_arrays(arrays: Mapping[str, np.ndarray], rules: Mapping[str, ArrayRule]) -> None:
    """Refuse arrays that are not the expected ones.

    Args:
        arrays: By name.
        rules: What each must be; there must be no other arrays.

    Raises:
        ValueError: One is missing, unknown, or breaks its rule; the message names it.
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
    """Return a matrix that was stored by rows, every pointer and index checked.

    SciPy's own check looks at indices only where `indptr` ends above 0, and its loops trust both.

    Args:
        data: The values.
        indices: Column of each value, rising in each row.
        indptr: Where each row begins in them, and where the last one ends.
        shape: Rows and columns.
        names: Of the arrays of indices and pointers, for messages.

    Raises:
        ValueError: They are no such matrix.
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
    if len(indices) and not (indices.min() >= 0 and indices.max() < num_columns):
        raise ValueError(f"{columns} are not all from 0 to {num_columns - 1}")
    if not _rises_in_rows(indices, indptr).all():
        raise ValueError(f"{columns} do not rise in each row")
    return csr_of(data, indices, indptr, shape)


def _rises_in_rows(indices: np.ndarray, indptr: np.ndarray) -> Bool[np.ndarray, step]:
    """Return which indices are larger than the one before, or the first of their row."""
    rises = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    rises[starts[(starts > 0) & (starts < len(indices))] - 1] = True
    return rises


def csr_of(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]
) -> csr_array:
    """Return a matrix by rows; 64 bits are for indices alone that need them.

    Nothing is checked: `stored_csr` is for what was read from a file.
    """
    most = max(*shape, len(data))
    dtype = np.int32 if most <= np.iinfo(np.int32).max else np.int64
    indices, indptr = (x.astype(dtype, copy=False) for x in (indices, indptr))
    return csr_array((data, indices, indptr), shape=shape)


def transposed(matrix: csr_array) -> csr_array:
    """Return the columns of a matrix as rows."""
    return csr_array(csr_of(matrix.data, matrix.indices, matrix.indptr, matrix.shape).T)


def check_rows(
    labels: Int64[np.ndarray, covered], num_rows: tuple[int, ...], num_labels: int
) -> None:
    """Refuse rows of labels that don't rise, are none of a catalogue, or are others than rows.

    Args:
        labels: Of each row.
        num_rows: Of each array that has rows.
        num_labels: Of the catalogue.

    Raises:
        ValueError: They are.
    """
    is_rising = bool((np.diff(labels) > 0).all())
    is_within = labels.min(initial=0) >= 0 and labels.max(initial=0) < num_labels
    if not len(labels) or not is_rising or not is_within:
        raise ValueError("labels that are not rising rows of the catalogue")
    if set(num_rows) != {len(labels)}:
        raise ValueError(f"{num_rows} rows for {len(labels)} labels")
