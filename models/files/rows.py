"""The rows of a text file as named fields, checked: JSON lines, and CSV by its header."""

from __future__ import annotations

import csv
import gc
import itertools
import json
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from longtail.models.errors import DataError, count_of, ignore
from longtail.models.files.text_files import (
    MAX_LINE_BYTES,
    BadLine,
    ProblemList,
    lines,
    list_problems,
)

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
"""Between the cells of a CSV file; the first that gives the header its columns is taken."""
Columns: TypeAlias = Sequence[tuple[str, ...]]
"""Columns that a file must have: at least one of each group."""
_GERMAN = {
    "titel": "title", "inhalt": "content", "beschreibung": "description",
    "schlagwörter": "keywords", "schlagworte": "keywords", "kategorien": "categories",
}  # fmt: skip
"""German names of columns, in lower case, and the known names that they stand for."""
AS_UTF_8 = (
    "save the file as UTF-8 ('CSV UTF-8' in Excel), or convert it, for example with "
    "'iconv -f cp1252 -t utf-8'"
)
_MAX_COLUMNS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class CsvHeader:
    """The first record of a CSV file.

    Attributes:
        delimiter: What stands between its cells.
        names: The columns' names; known ones as they are known, whatever their case in the file.
        renamed: The known name of each column that is written otherwise in the file.
    """

    delimiter: str
    names: tuple[str, ...]
    renamed: Mapping[str, str]

    def remarks(self) -> list[str]:
        """Return the recognised columns, without the columns that were only read."""
        found = []
        if self.delimiter != ",":
            found.append(f"columns are taken to be separated by {DELIMITERS[self.delimiter]}s")
        if self.renamed:
            pairs = (f"{written!r} as {known!r}" for written, known in self.renamed.items())
            found.append(f"columns are taken as known ones: {', '.join(pairs)}")
        return found


def find_header(
    lines: Iterable[str], columns: Columns, optional: Iterable[str] = (), *, strict: bool = True
) -> CsvHeader:
    """Return the header of a CSV file, by the delimiter that gives it its columns.

    Args:
        lines: Lines of the file, from its beginning; no more are taken than the header has.
        columns: What the file must have.
        optional: Other columns that mean something.
        strict: Whether a quote that is left open or not doubled is an error.
    """
    known = {name for group in columns for name in group} | set(optional)
    headers: list[CsvHeader] = []
    errors: list[csv.Error] = []
    copies = itertools.tee(lines, len(DELIMITERS))
    for delimiter, copy in zip(DELIMITERS, copies, strict=True):
        try:
            cells = next(csv.reader(copy, delimiter=delimiter, strict=strict), [])
        except csv.Error as error:
            errors.append(error)
            continue
        headers.append(_header(delimiter, cells, known))
        if _is_complete(headers[-1].names, columns):
            return headers[-1]
    if not headers:
        raise DataError(not_csv(errors[0]))
    expected = ", ".join(" or ".join(map(repr, group)) for group in columns)
    longest = max(headers, key=lambda header: len(header.names))
    as_written = {known: written for written, known in longest.renamed.items()}
    names = [as_written.get(name, name) for name in longest.names]
    if any("\udc80" <= sign <= "\udcff" for name in names for sign in name):
        raise DataError(f"the header is not UTF-8 ({_shown(names)}); {AS_UTF_8}")
    raise DataError(
        f"the header has the columns {_shown(names)}; "
        f"expected {expected} among them, each once, between commas, semicolons or tabs"
    )


def not_csv(error: csv.Error) -> str:
    """Describe the error of a file that is not CSV."""
    if "new-line character" in str(error):
        return (
            "not CSV (a line ends in a carriage return alone, as on old Macs); save the file with "
            "the line ends of Windows or Unix"
        )
    return f"not CSV ({error}); is a quote left open or not doubled?"


def _header(delimiter: str, cells: Sequence[str], known: set[str]) -> CsvHeader:
    written = [cell.strip() for cell in cells]
    in_lower_case = {name.lower(): name for name in known}
    present = {name.lower() for name in written}
    in_lower_case |= {
        german: name for german, name in _GERMAN.items() if name in known and name not in present
    }
    renamed = {
        name: in_lower_case[name.lower()]
        for name in written
        if name not in known and name.lower() in in_lower_case
    }
    return CsvHeader(delimiter, tuple(renamed.get(name, name) for name in written), renamed)


def _is_complete(names: Sequence[str], columns: Columns) -> bool:
    named = [name for name in names if name]  # Excel may leave columns without a name behind them
    return len(set(named)) == len(named) and all(set(group) & set(named) for group in columns)


def _shown(names: Sequence[str]) -> str:
    shown = ", ".join(map(reprlib.repr, names[:_MAX_COLUMNS_SHOWN]))
    num_more = len(names) - _MAX_COLUMNS_SHOWN
    return f"[{shown}]" + (f" and {num_more} more" if num_more > 0 else "")


Fields: TypeAlias = dict[str, Any]
Row: TypeAlias = tuple[int, Fields | BadLine]
"""Number of a line, and what it holds."""

_OPEN_QUOTE = "unexpected end of data"  # Python's words
_DELIMITER_HINT = re.compile(r'"?sep=.?"?\s*', re.IGNORECASE)
_MAX_PROBLEMS = 20
"""Listed of a file."""
_MAX_BAD_SHARE = 0.01
"""Lines of a UTF-8 file that may be damaged, as a share of all."""


def json_rows(path: Path, *, keep_blank: bool = False) -> Iterator[Row]:
    """Yield one JSON object a line, and a problem for each line that is none.

    Args:
        path: The file.
        keep_blank: Whether a blank line is a problem; else it is left out.
    """
    is_first = True
    for number, line in lines(path):
        if not line.strip() and not keep_blank:
            continue
        if is_first:
            _check_not_spread_out(path, number, line)
            is_first = False
        try:
            row: Fields | BadLine = _json_fields(line)
        except DataError as error:
            row = BadLine(number, str(error))
        yield number, row


def _check_not_spread_out(path: Path, number: int, line: bytes) -> None:
    start, rest = line.strip()[:1], line.strip()[1:].lstrip()
    is_array = start == b"[" and rest[:1] in {b"", b"{"}
    if not is_array and (start != b"{" or rest):
        return
    what = "a JSON array" if is_array else "a JSON object over several lines"
    advice = "write each object on a line of its own, as Python's json.dumps(document) does"
    if is_array:
        name = path.name.removesuffix(".gz")
        loop = f"[print(json.dumps(each)) for each in json.load(open({name!r}))]"
        advice = f'convert it, for example with: python3 -c "import json; {loop}" > lines.jsonl'
    raise DataError(
        f"{path}, line {number}: begins {what}, expected one JSON object a line; {advice}"
    )


def _json_fields(line: bytes) -> Fields:
    try:
        text = line.decode().rstrip("\r\n")
        fields = json.loads(text)
    except UnicodeDecodeError as error:
        raise DataError(not_utf_8(line[error.start], error.start)) from error
    except json.JSONDecodeError as error:
        where = f"at character {error.colno}"
        if error.pos >= len(text):
            where += ", where the line ends: is it cut off?"
        raise DataError(f"not JSON ({error.msg} {where})") from error
    except (ValueError, RecursionError) as error:  # a number of 4,300 digits; a nest of brackets
        raise DataError(f"not JSON that can be read ({error})") from error
    if not isinstance(fields, dict):
        shown = f"{reprlib.repr(fields)} ({type(fields).__name__})"
        raise DataError(f"{shown}; expected one JSON object a line")
    return fields


def not_utf_8(byte: int, position: int) -> str:
    """Describe the error of a line of another encoding, and what to do."""
    return f"not UTF-8 (byte 0x{byte:02x} at position {position}); {AS_UTF_8}"


def check_encoding(path: Path, content: Iterable[bytes | None]) -> None:
    """Refuse a file that is in another encoding than UTF-8 as a whole, not line by line.

    That is one in which more than a hundredth of the lines, and more lines than have UTF-8 beyond
    ASCII, are not UTF-8.

    Args:
        path: The file, for the message.
        content: Its lines; None for one that is left out.
    """
    num_lines = num_good = num_bad = 0
    first = ""
    for number, line in enumerate(content, 1):
        num_lines += 1
        if line is None or line.isascii():
            continue
        try:
            line.decode()
            num_good += 1
        except UnicodeDecodeError as error:
            num_bad += 1
            first = first or f"line {number} (byte 0x{line[error.start]:02x})"
    if num_bad > max(num_good, num_lines * _MAX_BAD_SHARE):
        raise DataError(
            f"{path}: {num_bad} of {num_lines} lines are not UTF-8, the first is {first}; "
            f"{AS_UTF_8}"
        )


class CsvTable:
    """The records of a CSV file, which is read once.

    Attributes:
        path: The file.
        header: The first record, with its columns as they are known.
        written: The cells of the first record, as they are written.
    """

    def __init__(
        self,
        path: Path,
        columns: Columns,
        optional: Iterable[str] = (),
        progress: Callable[[int], object] = ignore,
        *,
        strict: bool = True,
    ) -> None:
        """Read the header.

        Args:
            path: The file.
            columns: What it must have.
            optional: Other columns that mean something.
            progress: As for `longtail.models.files.text_files.bounded_lines`.
            strict: Whether a quote that is left open or not doubled is an error.
        """
        csv.field_size_limit(MAX_LINE_BYTES)  # Python's own, 131,072, is less than a long text
        self.path, self._strict = path, strict
        # What is not UTF-8 becomes lone surrogates, so that the record, not the file, is refused.
        content = (line.decode(errors="surrogateescape") for _, line in lines(path, progress))
        try:
            first = next(content, "")
            self._num_hints = int(_DELIMITER_HINT.fullmatch(first) is not None)  # Excel's `sep=;`
            head, rest = itertools.tee(
                content if self._num_hints else itertools.chain([first], content)
            )
            self.header = find_header(head, columns, optional, strict=strict)
        except DataError as error:
            is_of_file = str(error).startswith(f"{path}: ")
            raise DataError(str(error) if is_of_file else f"{path}, line 1: {error}") from error
        del head  # else all lines would be kept for it
        self._reader = csv.reader(rest, delimiter=self.header.delimiter, strict=strict)
        self.written = next(self._reader, [])

    def records(self) -> Iterator[tuple[int, list[str] | BadLine]]:
        """Yield the number of the first line of each record, and its cells."""
        while True:
            number = self._num_hints + self._reader.line_num + 1
            try:
                yield number, next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                reason = not_csv(error)
                if is_open := _OPEN_QUOTE in str(error):
                    reason = (
                        "a quote is opened here and never closed, so that all lines from here on "
                        "would be one; close it, or double it within a cell"
                    )
                if is_open or not self._strict:
                    raise DataError(f"{self.path}, line {number}: {reason}") from error
                yield number, BadLine(number, reason)

    def rows(self) -> Iterator[Row]:
        """Yield the records by their columns, and a problem for each that can't be read."""
        for number, cells in self.records():
            if isinstance(cells, BadLine):
                yield number, cells
            elif any(map(str.strip, cells)) if self._strict else cells:
                yield number, _csv_fields(number, self.header.names, cells)


def take_csv_rows(
    path: Path, columns: Columns, take: Callable[[Fields], object], problem: str
) -> None:
    """Hand each record of a CSV file to a function, which may refuse it by a `DataError`.

    Args:
        path: The file.
        columns: What it must have.
        take: Called with each record.
        problem: What refused lines are not: "don't say what replaces a label".
    """
    problems = ProblemList(path, _MAX_PROBLEMS)
    for number, fields in CsvTable(path, columns).rows():
        try:
            if isinstance(fields, BadLine):
                raise DataError(fields.reason)
            take(fields)
        except DataError as error:
            problems.add(BadLine(number, str(error)))
    if problems.num_problems:
        listed = list_problems(problems.kept, problems.num_problems)
        raise DataError(
            f"{path}: {count_of(problems.num_problems, 'line')} {problem}; correct them\n{listed}"
        )


def _csv_fields(number: int, header: Sequence[str], cells: list[str]) -> Fields | BadLine:
    if len(cells) != len(header):
        return BadLine(
            number,
            f"{len(cells)} cells; expected {len(header)}, as in the header; put a text with "
            "delimiters in it between quotes",
        )
    record = "\n".join(cells)
    try:
        record.encode()
    except UnicodeEncodeError as error:
        byte = ord(record[error.start]) - 0xDC00
        return BadLine(number, f"not UTF-8 (byte 0x{byte:02x}); {AS_UTF_8}")
    return dict(zip(header, cells, strict=True))


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Disable the cyclic garbage collector while many objects are made that form no cycles.

    Yields:
        Nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


NUL = "\0"


def string_of(fields: Fields, name: str) -> str:
    """Return a field that holds a string; empty where it is missing or null."""
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{name} is {shown(value)}; expected a string")
    check_characters(name, value)
    return value


def id_of(fields: Fields, name: str) -> str:
    """Return a field that holds an identifier, a string or a whole number; trimmed."""
    value = fields.get(name)
    return str(value) if type(value) is int else string_of(fields, name).strip()


def check_characters(name: str, value: str) -> None:
    """Refuse half of a surrogate pair, which JSON can spell and no file takes, and NUL.

    The service refuses NUL, too; other control characters are text.
    """
    if NUL in value:
        raise DataError(f"{name} holds a NUL character at position {value.index(NUL)}; remove it")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{name} holds {value[error.start]!r}, half of a surrogate pair; expected Unicode text"
        ) from error


def shown(value: object) -> str:
    """Return a value and its type, shortened, for a message."""
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def present(fields: Fields) -> str:
    """Return the names of the fields that there are, for a message."""
    return f"the line has {', '.join(map(reprlib.repr, fields)) or 'no fields'}"
