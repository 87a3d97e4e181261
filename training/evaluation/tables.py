"""Tables of figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Cells = tuple[list[str], list[list[str]]]
"""The heading of a table, and its rows."""
NOT_MEASURED = "-"
"""Stands in tables for what could not be measured."""
_NARROWEST = 3  # a ruler of ":" alone is none, and the whole no table


@dataclass(frozen=True, slots=True)
class Table:
    """A table with what it shows.

    Attributes:
        heading: A few words.
        note: What the figures are; empty where the heading says it.
        cells: Its heading row, and its rows.
        has_best: Whether the largest number of a column is the best one.
    """

    heading: str
    note: str
    cells: Cells
    has_best: bool = False

    def to_markdown(self) -> str:
        """Return heading, note and table."""
        parts = (f"## {self.heading}", self.note, markdown_table(*self.cells))
        return "\n\n".join(filter(None, parts))


def number_if_few(number: int, noun: str = "document") -> str:
    """Return what follows a share of fewer than 50, whose number is shown: " (15 documents)"."""
    return f" ({number} {noun}{'s' * (number != 1)})" if number < 50 else ""


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
