"""Sparse matrices as text, as the Extreme Classification Repository lays out its data.

The first line is a header, then comes a line for each row. In the *combined* form the header is
"N D L" (documents, features, labels) and a line holds a document's labels and its features:

    3,17 0:0.25 8:1.5       labels 3 and 17
     0:0.25 8:1.5           no labels: the line starts with a space
    3                       no features

In the *matrix* form the header is "N C" (rows, columns) and a line holds `column:value` pairs, so
that an empty one is an empty row. Indices count from 0. Values are decimal numbers, read to the
nearest double and then to the nearest float32. Pairs may come in any order; a column comes once.

A line that breaks a rule becomes a `Problem`; a file that can't be used as a whole is an error.
"""

from __future__ import annotations

import re
import reprlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32, Int64
from scipy.sparse import csr_array

from models.errors import DataError
from training.formats.bad_lines import Problem
from training.formats.text_files import blocks, writing

_MOST_COLUMNS = 2**31 - 1  # column indices are 32 bits wide
_FLOAT_FORMAT = "%d:%.9g"  # nine digits tell every float32 from its neighbours


@dataclass(frozen=True, slots=True)
class SparseHeader:
    """The first line of a file.

    Attributes:
        num_rows: Lines that follow.
        num_columns: What a column index is below.
        num_labels: What a label index is below; None in the matrix form.
        column: What people call a column: "feature" or "label".
    """

    num_rows: int
    num_columns: int
    num_labels: int | None
    column: str


@dataclass(frozen=True, slots=True)
class SparseLines:
    """What some lines hold, line after line.

    Attributes:
        numbers: Number of each line in its file, from 1.
        label_sizes: Number of labels of each line; zeros in the matrix form.
        labels: Their indices, as the file has them: in any order, repeated or not.
        sizes: Number of pairs of each line.
        columns: Their column indices, in the order of the file, each once a line.
        values: Their values; finite.
    """

    numbers: Int64[np.ndarray, line]
    label_sizes: Int32[np.ndarray, line]
    labels: Int32[np.ndarray, label]
    sizes: Int32[np.ndarray, line]
    columns: Int32[np.ndarray, pair]
    values: Float32[np.ndarray, pair]


def read_header(path: Path, *, has_labels: bool, column: str = "feature") -> SparseHeader:
    """Read the first line of a file.

    Args:
        path: The file; compressed where its name ends in `.gz`.
        has_labels: Whether it has the combined form.
        column: What to call a column.

    Raises:
        DataError: The file can't be read, or its first line is no header.
    """
    _, line = next(blocks(path), (1, b""))
    numbers = line.split()
    wanted = f"rows and {column}s" if not has_labels else "documents, features and labels"
    if len(numbers) != (3 if has_labels else 2) or not all(map(bytes.isdigit, numbers)):
        shown = reprlib.repr(line.decode(errors="replace").rstrip())
        raise DataError(f"{path}, line 1: {shown}; wanted the numbers of {wanted}")
    num_rows, *bounds = map(int, numbers)
    if not all(0 < bound <= _MOST_COLUMNS for bound in bounds):
        raise DataError(
            f"{path}, line 1: {' '.join(map(str, (num_rows, *bounds)))}; wanted the numbers of "
            f"{wanted}, the last {'two' if has_labels else 'one'} from 1 to {_MOST_COLUMNS}"
        )
    return SparseHeader(num_rows, bounds[0], bounds[1] if has_labels else None, column)


def read_lines(path: Path, header: SparseHeader) -> Iterator[SparseLines | Problem]:
    """Yield what the lines after the header hold, in order, and a problem for each bad line.

    Raises:
        DataError: The file can't be read to its end, or has other than the header's number of
            lines; the latter is told after all lines were given.
    """
    num_read = 0
    for number, block in blocks(path):
        if number > 1:
            num_read += block.count(b"\n")
            yield from _parsed(block, number, header)
    if num_read != header.num_rows:
        raise DataError(
            f"{path}: the header says {header.num_rows} lines, {num_read} follow it; "
            "is the file whole?"
        )


def write_sparse_text(
    path: Path,
    features: Float32[csr_array, "document feature"],
    labels: Float32[csr_array, "document label"],
) -> None:
    """Write documents in the combined form; reading them gives the same values to the bit.

    Args:
        path: The file; compressed where its name ends in `.gz`.
        features: A row for each document; finite.
        labels: Whatever stands in a row is a label of the document.
    """
    assert features.shape[0] == labels.shape[0] and np.isfinite(features.data).all()
    with writing(path) as file:
        file.write(f"{features.shape[0]} {features.shape[1]} {labels.shape[1]}\n")
        for row in range(features.shape[0]):
            carried = labels.indices[labels.indptr[row] : labels.indptr[row + 1]]
            held = slice(features.indptr[row], features.indptr[row + 1])
            pairs = join_pairs(features.indices[held], features.data[held])
            file.write(f"{','.join(map(str, carried.tolist()))} {pairs}\n")


def join_pairs(
    columns: Int32[np.ndarray, pair] | Int64[np.ndarray, pair],
    values: Float32[np.ndarray, pair],
) -> str:
    """Return `column:value` pairs as they stand in a line."""
    return " ".join(
        [_FLOAT_FORMAT % pair for pair in zip(columns.tolist(), values.tolist(), strict=True)]
    )


def _parsed(block: bytes, number: int, header: SparseHeader) -> Iterator[SparseLines | Problem]:
    # Good lines are parsed all at once; bad ones are found by halving the block.
    found = _parse(block, number, header)
    if found is not None:
        yield found
        return
    middle = block.rfind(b"\n", 0, len(block) // 2) + 1 or block.find(b"\n") + 1
    if middle == len(block):
        yield Problem(number, _reason(block.decode(errors="replace"), header))
        return
    yield from _parsed(block[:middle], number, header)
    yield from _parsed(block[middle:], number + block.count(b"\n", 0, middle), header)


# A line is cut at the bytes that are no digits. What may follow what depends on the kind of such a
# byte, the kind of the one before it, and whether digits stand between the two.
_SPACE, _FEED, _COMMA, _COLON, _POINT, _OTHER = range(6)  # _POINT: of the bytes of a number
_KINDS = np.full(256, _OTHER, dtype=np.uint8)
for _bytes, _kind in ((b" \t", _SPACE), (b"\n", _FEED), (b",", _COMMA), (b":", _COLON)):
    _KINDS[list(_bytes)] = _kind
_KINDS[list(b".+-eE")] = _POINT
_TO_SPACES = bytes.maketrans(b",:\n\t", b"    ")


def _step(before: int, kind: int, has_digits: bool) -> int:
    return 12 * before + 2 * kind + has_digits


def _allowed_steps(*, has_labels: bool) -> Bool[np.ndarray, step]:
    allowed = np.zeros(72, dtype=np.bool_)
    for end in (_SPACE, _FEED):
        allowed[_step(_COLON, end, True)] = True  # the value 12
        allowed[_step(_POINT, end, True)] = allowed[_step(_POINT, end, False)] = True  # 1.2 and 1.
        allowed[_step(_SPACE, end, False)] = True
        allowed[_step(_COMMA, end, True)] = allowed[_step(_FEED, end, True)] = has_labels
    for before in (_COLON, _POINT):
        allowed[_step(before, _POINT, True)] = allowed[_step(before, _POINT, False)] = True
    for before in (_SPACE, _FEED):
        allowed[_step(before, _COLON, True)] = True
    allowed[_step(_FEED, _SPACE, False)] = True
    allowed[_step(_FEED, _FEED, False)] = not has_labels
    allowed[_step(_FEED, _COMMA, True)] = allowed[_step(_COMMA, _COMMA, True)] = has_labels
    return allowed


_COMBINED_STEPS = _allowed_steps(has_labels=True)
_MATRIX_STEPS = _allowed_steps(has_labels=False)


def _parse(block: bytes, number: int, header: SparseHeader) -> SparseLines | None:
    """Return what whole lines hold, or None if one of them breaks a rule."""
    content = np.frombuffer(block, dtype=np.uint8)
    cuts = np.flatnonzero(content - np.uint8(ord("0")) > 9)  # below "0" it wraps around
    kinds = _KINDS[content[cuts]]
    before = np.empty_like(kinds)
    before[0], before[1:] = _FEED, kinds[:-1]
    has_digits = np.diff(cuts, prepend=-1) > 1
    steps = _COMBINED_STEPS if header.num_labels is not None else _MATRIX_STEPS
    if not steps[12 * before + 2 * kinds + has_digits].all():
        return None
    is_number = (kinds != _POINT) & (has_digits | (before == _POINT))
    is_column = kinds == _COLON
    is_value = is_number & ((before == _COLON) | (before == _POINT))
    numbers = _numbers(block, int(np.count_nonzero(is_number)))
    if numbers is None:
        return None
    ends = kinds == _FEED
    columns = _indices(numbers[is_column[is_number]], header.num_columns)
    labels = _indices(
        numbers[~(is_column | is_value)[is_number]], header.num_labels or _MOST_COLUMNS
    )
    values = _values(numbers[is_value[is_number]])
    sizes = _counts(is_column, ends)
    if columns is None or labels is None or values is None or _has_repeats(columns, sizes):
        return None
    return SparseLines(
        numbers=np.arange(number, number + len(sizes), dtype=np.int64),
        label_sizes=_counts(is_number & ~is_column & ~is_value, ends),
        labels=labels,
        sizes=sizes,
        columns=columns,
        values=values,
    )


def _numbers(block: bytes, wanted: int) -> Float64[np.ndarray, number] | None:
    """Return the numbers of a block, or None if there are others than that many."""
    if not wanted:
        return np.empty(0)  # which NumPy takes for a mistake
    with warnings.catch_warnings():
        # NumPy warns of what is no number; a later release will raise.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            numbers = np.fromstring(block.translate(_TO_SPACES), sep=" ")
        except (DeprecationWarning, ValueError):
            return None
    return numbers if len(numbers) == wanted else None


def _indices(numbers: Float64[np.ndarray, number], bound: int) -> Int32[np.ndarray, number] | None:
    # They are made of digits alone, so they are whole numbers.
    if len(numbers) and numbers.max() >= bound:
        return None
    return numbers.astype(np.int32)


def _values(numbers: Float64[np.ndarray, number]) -> Float32[np.ndarray, number] | None:
    with np.errstate(over="ignore"):
        values = numbers.astype(np.float32)
    return values if np.isfinite(values).all() else None


def _counts(
    is_counted: Bool[np.ndarray, cut], ends: Bool[np.ndarray, cut]
) -> Int32[np.ndarray, line]:
    """Return how many cuts count in each line."""
    return np.diff(np.cumsum(is_counted, dtype=np.int32)[ends], prepend=np.int32(0))


def _has_repeats(columns: Int32[np.ndarray, pair], sizes: Int32[np.ndarray, line]) -> bool:
    """Tell whether a line names a column twice."""
    is_rising = columns[1:] > columns[:-1]
    starts = np.cumsum(sizes)[:-1]
    is_rising[starts[(starts > 0) & (starts < len(columns))] - 1] = True
    if is_rising.all():
        return False
    keys = np.repeat(np.arange(len(sizes), dtype=np.int64) << 32, sizes) | columns
    keys.sort()
    return bool((keys[1:] == keys[:-1]).any())


# Why a line is bad. Slow: called for bad lines alone.

_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DIGITS = re.compile(r"[0-9]+")


def _reason(line: str, header: SparseHeader) -> str:
    """Return all that is wrong with a line."""
    if not line.strip():
        return "blank line; a document without labels and features is a single space"
    tokens = re.split(r"[ \t]+", line.rstrip("\n"))
    reasons = []
    if header.num_labels is not None and ":" not in tokens[0]:
        first, *tokens = tokens
        for label in first.split(",") if first else ():
            reasons += _wrong_index("label", label, header.num_labels)
    seen: set[int] = set()
    for token in filter(None, tokens):
        reasons += _wrong_pair(token, header, seen)
    assert reasons
    return "; ".join(reasons)


def _wrong_index(what: str, text: str, bound: int) -> list[str]:
    if not _DIGITS.fullmatch(text):
        return [f"{reprlib.repr(text)} is no {what} index; wanted 0 to {bound - 1}"]
    if float(text) >= bound:
        return [f"{what} index {reprlib.repr(text)} is out of range; wanted 0 to {bound - 1}"]
    return []


def _wrong_pair(token: str, header: SparseHeader, seen: set[int]) -> list[str]:
    index, colon, value = token.partition(":")
    if not colon:
        return [f"{reprlib.repr(token)} is no pair; wanted {header.column}:value"]
    reasons = _wrong_index(header.column, index, header.num_columns)
    if not reasons:
        column = int(float(index))  # int() alone refuses thousands of zeros
        if column in seen:
            reasons = [f"{header.column} {column} occurs twice"]
        seen.add(column)
    shown = f"value {reprlib.repr(value)} of {header.column} {reprlib.repr(index)}"
    if not _DECIMAL.fullmatch(value):
        reasons.append(f"{shown} is no decimal number")
    elif _values(np.array([float(value)])) is None:
        reasons.append(f"{shown} is too large for 32 bits")
    return reasons
