"""The labels of one CSV cell: a JSON list, or ids and names between semicolons."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

DELIMITER = ";"
"""Stands between labels, unless the cell is a JSON list."""
IsLabel: TypeAlias = Callable[[str], bool]
"""Tells whether a text is the id or the name of a known label."""


def labels_of_cell(cell: str, is_label: IsLabel | None = None) -> list[Any]:
    """Return the labels of a cell; they still have to be checked, those of a JSON list too.

    Known labels win over the delimiter: at each place the longest run of parts that is one.

    Args:
        cell: Of a CSV file; none where it is blank.
        is_label: Tells known labels; None: none are known.
    """
    if not cell.strip():
        return []
    if is_label is not None and is_label(cell.strip()):
        return [cell.strip()]
    listed = _json_list(cell)
    if listed is not None:
        return listed
    parts = cell.split(DELIMITER)
    return parts if is_label is None else _longest_known(parts, is_label)


def _json_list(cell: str) -> list[Any] | None:
    """Return the entries of a cell that is a JSON list; None where it is something else."""
    if not cell.lstrip().startswith("["):
        return None
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def _longest_known(parts: list[str], is_label: IsLabel) -> list[str]:
    labels: list[str] = []
    first = 0
    while first < len(parts):
        stop = next(
            (
                stop
                for stop in range(len(parts), first + 1, -1)
                if is_label(DELIMITER.join(parts[first:stop]).strip())
            ),
            first + 1,
        )
        labels.append(DELIMITER.join(parts[first:stop]))
        first = stop
    return labels
