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
    """Return the rows; none where the file is not there.

    Raises:
        ConfigError: It is no leaderboard.
    """
    found: list[dict[str, Any]] = []
    if path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["rows"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ConfigError(
                f"{path}: can't be read as a leaderboard ({error!r}); give the path of one, or of "
                "a file that is to be written"
            ) from error
    return found


def check_corpus(path: Path, name: str, fingerprint: str) -> None:
    """Refuse another corpus under the name of a set.

    Raises:
        ConfigError: The file has rows of another corpus under this name.
    """
    of_set = [row for row in read_rows(path) if row["set"] == name]
    if any(row["figures"]["data"] != fingerprint for row in of_set):
        raise ConfigError(
            f"{path}: its rows of the set {name!r} are of another corpus than this one; give the "
            "corpus a folder of another name"
        )


def put_row(path: Path, row: Mapping[str, Any]) -> None:
    """Write a row in place of the one of its set and name, or as a new one.

    Raises:
        ConfigError: The file has rows of another corpus under the name of this set.
    """
    check_corpus(path, row["set"], row["figures"]["data"])
    kept = [x for x in read_rows(path) if key_of(x) != key_of(row)]
    write_rows(path, [*kept, dict(row)])


def key_of(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return set and name of a row."""
    return row["set"], row["figures"]["name"]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows by set and name, one a line."""
    ordered = sorted(rows, key=key_of)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_lines_durably(path, ['{"rows": [', ",\n".join(map(json.dumps, ordered)), "]}"])
