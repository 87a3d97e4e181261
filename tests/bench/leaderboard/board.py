"""The one file of the leaderboard: its rows, each a line, and the tests of their differences.

    {"rows": [{"set": ..., "command": ..., "commit": ..., "date": ..., "processor": ...,
               "seeds": [...], "figures": {"name": ..., "version": ..., "settings": ...,
               "data": ..., "costs": {...}, "bands": {...}, ...}}, ...],
     "differences": {SET: {"command": ..., ..., "figures": {"left_out": ..., "tests": [...]}}}}

`docs/generation/leaderboard.py` makes the tables of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longtail.models.errors import ConfigError
from longtail.models.files.durable import write_lines_durably


def read_board(path: Path) -> dict[str, Any]:
    """Return the board, without rows where the file is not there."""
    if not path.exists():
        return {"rows": [], "differences": {}}
    board: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return board


def put_row(path: Path, row: Mapping[str, Any]) -> None:
    """Write a row in place of the one of its set and name, or as a new one.

    Raises:
        ConfigError: The file has rows of another corpus under the name of this set.
    """
    board = read_board(path)
    figures = row["figures"]
    of_set = [x for x in board["rows"] if x["set"] == row["set"]]
    if any(x["figures"]["data"] != figures["data"] for x in of_set):
        raise ConfigError(
            f"{path}: its rows of the set {row['set']!r} are of another corpus than this row; "
            "give the corpus a folder of another name"
        )
    same = [x for x in of_set if x["figures"]["name"] == figures["name"]]
    board["rows"] = [x for x in board["rows"] if x not in same] + [dict(row)]
    write_board(path, board)


def put_differences(path: Path, set_name: str, record: Mapping[str, Any]) -> None:
    """Write the tests of a set in place of its earlier ones."""
    board = read_board(path)
    board["differences"][set_name] = dict(record)
    write_board(path, board)


def write_board(path: Path, board: Mapping[str, Any]) -> None:
    """Write rows by set and name, one a line."""
    rows = sorted(board["rows"], key=lambda row: (row["set"], row["figures"]["name"]))
    tests = sorted(board["differences"].items())
    lines = [
        '{"rows": [',
        ",\n".join(json.dumps(row) for row in rows),
        '], "differences": {',
        ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in tests),
        "}}",
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_lines_durably(path, lines)
