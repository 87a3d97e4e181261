"""The columns of a CSV file: what stands between them, and which of the known ones they are."""

from __future__ import annotations

import csv
import itertools
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from longtail.models.errors import DataError

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
_MAX_CHOICES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class CsvHeader:
    """The first record of a CSV file.

    Attributes:
        delimiter: What stands between its cells.
        names: Of the columns; known ones as they are known, whatever their case in the file.
        renamed: The known name of each column that is written otherwise in the file.
    """

    delimiter: str
    names: tuple[str, ...]
    renamed: Mapping[str, str]

    def remarks(self) -> list[str]:
        """Return what was recognised and not just read."""
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
        lines: Of the file, from its beginning; no more are taken than the header has.
        columns: What the file must have.
        optional: Other columns that mean something.
        strict: Whether a quote that is left open or not doubled is an error.

    Raises:
        DataError: No delimiter gives all columns, or the header is not CSV.
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
    expected = ", ".join(map(_choice, columns))
    longest = max(headers, key=lambda header: len(header.names))
    if any("\udc80" <= sign <= "\udcff" for name in longest.names for sign in name):
        raise DataError(f"the header is not UTF-8 ({_shown(longest.names)}); {AS_UTF_8}")
    raise DataError(
        f"the header has the columns {_shown(longest.names)}; "
        f"expected {expected} among them, each once, between commas, semicolons or tabs"
    )


def not_csv(error: csv.Error) -> str:
    """Return what is wrong with a file that is not CSV."""
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


def _choice(names: Sequence[str]) -> str:
    more = ["..."] if len(names) > _MAX_CHOICES_SHOWN else []
    return " or ".join([*map(repr, names[:_MAX_CHOICES_SHOWN]), *more])


def _shown(names: Sequence[str]) -> str:
    shown = ", ".join(map(reprlib.repr, names[:_MAX_COLUMNS_SHOWN]))
    num_more = len(names) - _MAX_COLUMNS_SHOWN
    return f"[{shown}]" + (f" and {num_more} more" if num_more > 0 else "")
