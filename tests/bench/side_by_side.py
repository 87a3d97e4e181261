"""Figures of the same benchmark on several kinds of machines, side by side in one record.

    python tests/bench/side_by_side.py RECORD RECORD ... --json docs/results/NAME.json

Each table gets a first column that says which way the processor takes (`machine.way_of`), and the
rows of all records, in their order. `docs/render.py` shows it as any other.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from machine import way_of
from recording import add_json_option

from longtail.models.processor import Processor
from longtail.training.evaluation.record import make_record, write_record

COLUMN = {"name": "processor"}


def main() -> None:
    """Read the records, and write one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path, nargs="+")
    add_json_option(parser)
    chosen = parser.parse_args()  # it measures nothing
    joined = join([json.loads(path.read_text(encoding="utf-8")) for path in chosen.records])
    if chosen.json is None:
        print(json.dumps(joined, indent=1))
        return
    write_record(chosen.json, make_record(joined) | {"processor": None})
    print(f"Written: {chosen.json}", file=sys.stderr)


def join(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the tables of records that were measured by the same program, by name.

    Raises:
        ValueError: A table has other columns in another record.
    """
    joined: dict[str, Any] = {}
    for record in records:
        said = record["processor"]
        processor = Processor(said["model"], tuple(said["flags"]), said["cores"])
        way = f"{way_of(processor, _limits_of(record['command']))}, {processor.cores} cores"
        for name, table in record["figures"].items():
            if not isinstance(table, dict) or "rows" not in table:
                continue
            columns = [COLUMN, *table["columns"]]
            kept = joined.setdefault(name, {"columns": columns, "rows": []})
            if kept["columns"] != columns:
                raise ValueError(f"table {name!r} has other columns in another record")
            kept["rows"] += [[way, *row] for row in table["rows"]]
    return joined


def _limits_of(command: str) -> dict[str, str]:
    """Return the variables that stand in front of a command."""
    words = command.split()
    return dict(
        word.split("=", 1) for word in words if "=" in word and word.split("=")[0].isupper()
    )


if __name__ == "__main__":
    main()
