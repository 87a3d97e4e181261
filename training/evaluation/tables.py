"""Markdown tables of figures."""

from __future__ import annotations

from collections.abc import Sequence

Cells = tuple[list[str], list[list[str]]]
"""The heading of a table, and its rows."""
NOT_MEASURED = "-"
"""Stands in tables for what could not be measured."""
_NARROWEST = 3  # a ruler of ":" alone is none, and the whole no table


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a markdown table whose columns line up in a terminal; all but the first to the right.

    Args:
        header: The heading of each column.
        rows: The cells; each row as long as the header.
    """
    widths = [max(_NARROWEST, *map(len, column)) for column in zip(header, *rows, strict=True)]
    ruler = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = []
    for cells in (header, ruler, *rows):
        padded = [cells[0].ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        lines.append(f"| {' | '.join(padded)} |")
    return "\n".join(lines)
