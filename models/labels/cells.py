"""The labels of one CSV cell: a list, or ids and names between semicolons.

A list is one of JSON; or of strings, as Python, pandas and NumPy write lists, tuples and sets:
`['a', 'b']`, `('a',)`, `{'a', 'b'}`, `['a' 'b']`. A delimiter behind the last label is before
nothing, and is no mistake.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

from longtail.models.errors import DataError
from longtail.models.files.rows import shown

DELIMITER = ";"
"""Stands between labels, unless the cell is a list."""
IsLabel: TypeAlias = Callable[[str], bool]
"""Tells whether a text is the id or the name of a known label."""

_MOST_PARTS = 16
"""Parts of a known label that has delimiters in it; to try all would take the square of a cell."""
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_EMPTY_LISTS = frozenset({"[]", "()", "{}", "set()"})
_FIRST_IS_STRING = re.compile(r"[\[({]\s*(np\.str_\()?['\"]")
_BROKEN_LIST = re.compile(r"\s*(\[\s*(np\.str_\()?['\"]|[({]\s*['\"].*[)}]\s*$)", re.DOTALL)
_ENTRY = re.compile(
    r"""\s*(?P<typed>np\.str_\()?
    (?P<value>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?[0-9]{1,18})
    (?(typed)\))\s*(?:,\s*|(?<=\s)|$)""",
    re.VERBOSE | re.DOTALL,
)
"""One entry of a list and what follows it: a comma; white space, as NumPy has it; or the end."""


def labels_of_cell(cell: str, is_label: IsLabel | None = None) -> list[Any]:
    """Return the labels of a cell; they still have to be checked, those of a JSON list too.

    Known labels win over the delimiter: at each place the longest run of parts that is one.

    Args:
        cell: A cell of a CSV file; None where it is blank.
        is_label: Tells known labels; None: none are known.
    """
    if not cell.strip():
        return []
    if is_label is not None and is_label(cell.strip()):
        return [cell.strip()]
    listed = listed_labels(cell)
    if listed is not None:
        return listed
    if _BROKEN_LIST.match(cell):
        raise DataError(
            f"{shown(cell)} begins as a list and can't be read as one; write a JSON list, such as "
            '["a", "b"], or labels between semicolons'
        )
    parts = cell.split(DELIMITER)
    return without_last_blanks(parts if is_label is None else _longest_known(parts, is_label))


def without_last_blanks(parts: list[str]) -> list[str]:
    """Return the parts of a cell up to the last that holds something."""
    num_kept = next((n for n in range(len(parts), 0, -1) if parts[n - 1].strip()), 0)
    return parts[:num_kept]


def listed_labels(cell: str) -> list[Any] | None:
    """Return the entries of a cell that is a list, see above; None where it is something else."""
    stripped = cell.strip()
    if stripped in _EMPTY_LISTS:
        return []
    if stripped[:1] not in _BRACKETS:
        return None
    found = _json_list(stripped)
    return python_list(stripped) if found is None else found


def _json_list(cell: str) -> list[Any] | None:
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def python_list(cell: str) -> list[str | int] | None:
    """Return the entries of a list, tuple or set of strings as Python writes it; None for another.

    Nothing is evaluated but the escapes of a string.
    """
    if _BRACKETS.get(cell[:1]) != cell[-1:] or not _FIRST_IS_STRING.match(cell):
        return None
    entries: list[str | int] = []
    position, stop = 1, len(cell) - 1
    while position < stop and (found := _ENTRY.match(cell, position, stop)):
        entry = _value_of(found["value"])
        if entry is None:
            return None
        entries.append(entry)
        position = found.end()
    return entries if position == stop else None


def _value_of(literal: str) -> str | int | None:
    """Return a number, or the text between quotes; None where an escape in it means nothing."""
    if literal[0] not in "'\"":
        return int(literal)
    if "\\" not in literal:
        return literal[1:-1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return str(ast.literal_eval(literal))
    except (ValueError, SyntaxError, Warning):
        return None


def _longest_known(parts: list[str], is_label: IsLabel) -> list[str]:
    labels: list[str] = []
    first = 0
    while first < len(parts):
        stop = next(
            (
                stop
                for stop in range(min(len(parts), first + _MOST_PARTS), first + 1, -1)
                if is_label(DELIMITER.join(parts[first:stop]).strip())
            ),
            first + 1,
        )
        labels.append(DELIMITER.join(parts[first:stop]))
        first = stop
    return labels
