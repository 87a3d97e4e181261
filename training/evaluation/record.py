"""A record of a measurement: its figures, and what it takes to believe and to repeat them.

`longtail evaluate --json FILE` and its like write one, and so does each benchmark of `tests/bench`:

    {"command": ..., "commit": ..., "date": ..., "processor": {"model": ..., "flags": [...],
     "cores": ...}, "seeds": [...], "figures": {...}}
"""

from __future__ import annotations

import json
import math
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from longtail.models.files.durable import write_json_durably
from longtail.models.files.failures import doing
from longtail.models.files.outputs import check_output_file
from longtail.models.processor import find_processor

PRINTED = Path("-")
"""The file of `--json` that stands for stdout."""

_SOURCE = Path(__file__).parents[3]


def make_record(
    figures: Mapping[str, Any],
    *,
    seeds: Iterable[int] = (),
    command: str | None = None,
) -> dict[str, Any]:
    """Return the record of a measurement of this process, as JSON has it.

    A number that is not finite is in it as text ("nan", "inf"), for JSON has none such.

    Args:
        figures: What was measured, by name.
        seeds: Seeds of everything random in it; empty where nothing is, or where none is known.
        command: What measured; None: this process's command line.
    """
    return {
        "command": command or command_line(sys.argv),
        "commit": find_commit(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "processor": _plain(asdict(find_processor())),
        "seeds": list(seeds),
        "figures": _plain(figures),
    }


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record as JSON, in a folder that is made if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_durably(path, record)


def check_record_file(
    path: Path | None,
    *,
    inputs: Iterable[Path] = (),
    registry: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Refuse a file of `--json` that must not be written (see `check_output_file`).

    Args:
        path: The file; None or `PRINTED` where none is written.
        inputs: Files that the command reads.
        registry: Folder of the registry that it reads, if it reads one.
        overwrite: Whether a file that is there may be replaced.
    """
    if path is not None and path != PRINTED:
        check_output_file(
            path, inputs=inputs, registry=registry, overwrite=overwrite, option="--json"
        )


def deliver(
    path: Path | None,
    figures: Mapping[str, Any],
    text: str,
    paths: Iterable[Path] = (),
    *,
    seeds: Iterable[int] = (),
) -> str:
    """Write a record where one is asked for, and return what the command prints.

    Args:
        path: The file of `--json`: None for no record, `PRINTED` to print it and nothing else.
        figures: What was measured.
        text: The tables.
        paths: Files written, to be named below the tables.
        seeds: Seeds of everything random in it.
    """
    written = list(paths)
    if path is not None:
        record = make_record(figures, seeds=seeds)
        if path == PRINTED:
            return json.dumps(record, indent=1)
        with doing("writing the record", path):
            write_record(path, record)
        written.append(path)
    lines = [f"Written: {each}" for each in written]
    return "\n".join([*([text, ""] if text and lines else [text] if text else []), *lines])


def command_line(arguments: list[str]) -> str:
    """Return a command line as a person types it in the folder of the source.

    Args:
        arguments: Arguments of the process, with its name first.
    """
    program = Path(arguments[0]).resolve()
    if program.suffix != ".py" or program.parent.name == "longtail":
        return shlex.join(["longtail", *arguments[1:]])
    if program.name == "__main__.py":
        return shlex.join(["python", "-m", program.parent.name, *arguments[1:]])
    if program.is_relative_to(_SOURCE):
        program = program.relative_to(_SOURCE)
    return shlex.join(["python", str(program), *arguments[1:]])


def find_commit() -> str | None:
    """Return the commit of the source, "-dirty" behind it where files differ from it.

    Returns:
        None where the source is no checkout, or there is no Git.
    """
    git = shutil.which("git")
    if git is None or not (_SOURCE / ".git").exists():  # an outer checkout is not the source's
        return None
    command = [git, "-C", str(_SOURCE), "describe", "--always", "--dirty", "--exclude", "*"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return found.stdout.strip() or None


def _plain(value: Any) -> Any:
    """Return what JSON can hold: lists for tuples, text for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


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
