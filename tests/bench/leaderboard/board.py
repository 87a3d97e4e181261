"""The one file of the leaderboard: its rows, each a line.

    {"rows": [{"set": ..., "command": ..., "commit": ..., "date": ..., "processor": ...,
               "seeds": [...], "figures": {"name": ..., "version": ..., "settings": ...,
               "data": ..., "costs": {...}, "bands": {...}, ...}}, ...]}

`docs/generation/leaderboard.py` makes the tables of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longtail.models.errors import ConfigError
from longtail.models.files.durable import write_lines_durably


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows; none where the file is not there."""
    found: list[dict[str, Any]] = []
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return found


def put_row(path: Path, row: Mapping[str, Any]) -> None:
    """Write a row in place of the one of its set and name, or as a new one.

    Raises:
        ConfigError: The file has rows of another corpus under the name of this set.
    """
    rows, figures = read_rows(path), row["figures"]
    of_set = [x for x in rows if x["set"] == row["set"]]
    if any(x["figures"]["data"] != figures["data"] for x in of_set):
        raise ConfigError(
            f"{path}: its rows of the set {row['set']!r} are of another corpus than this row; "
            "give the corpus a folder of another name"
        )
    same = [x for x in of_set if x["figures"]["name"] == figures["name"]]
    write_rows(path, [x for x in rows if x not in same] + [dict(row)])


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows by set and name, one a line."""
    ordered = sorted(rows, key=lambda row: (row["set"], row["figures"]["name"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_lines_durably(path, ['{"rows": [', ",\n".join(map(json.dumps, ordered)), "]}"])
