"""What benchmarks print and keep: tables with numbers in full, and the option `--json`.

A record of `--json` is what `docs/render.py` makes the tables of `docs/results` of.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from longtail.training.evaluation.record import make_record, write_record

Cell = str | int | float | bool | None


class Table:
    """A table that is printed row by row, and kept.

    Attributes:
        rows: Those measured so far; numbers as they are.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        """Print the heading.

        Args:
            columns: By heading, how cells are printed: "" as they are, else a format of numbers.
        """
        self._columns = columns
        self.rows: list[list[Cell]] = []
        print(f"\n| {' | '.join(columns)} |")
        print(f"|{'|'.join('---:' if form else '---' for form in columns.values())}|", flush=True)

    def add(self, *cells: Any) -> None:
        """Print a row and keep it; None is a dash."""
        plain = [cell.item() if hasattr(cell, "item") else cell for cell in cells]
        forms = self._columns.values()
        shown = [
            "-" if x is None else format(x, form) for x, form in zip(plain, forms, strict=True)
        ]
        print(f"| {' | '.join(shown)} |", flush=True)
        self.rows.append(plain)

    def to_json(self) -> dict[str, Any]:
        """Return columns and rows as `docs/render.py` reads them."""
        columns: list[dict[str, Any]] = []
        for name, form in self._columns.items():
            digits = re.search(r"\.(\d+)f", form)
            columns.append({"name": name} | ({"digits": int(digits[1])} if digits else {}))
        return {"columns": columns, "rows": self.rows}


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add the option to the others of a benchmark."""
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the figures here, with command, commit, date and processor",
    )


def keep(path: Path | None, figures: Mapping[str, Any], *, seeds: Iterable[int] = ()) -> None:
    """Write a record where one was asked for.

    Args:
        path: The file; None for none.
        figures: What was measured: tables, lists of objects, or numbers by name.
        seeds: Seeds of everything random in it.
    """
    if path is not None:
        plain = {name: x.to_json() if isinstance(x, Table) else x for name, x in figures.items()}
        write_record(path, make_record(plain, seeds=seeds))
        print(f"Written: {path}", file=sys.stderr)
