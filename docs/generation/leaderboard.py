"""Tables of the leaderboard, from its one file, as `tests/bench/leaderboard/board.py` writes it.

No number is bold: which rows differ by more than chance is said by the tests in the file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from longtail.models.metrics import shown_in

FILE = "leaderboard.json"
BANDS = ("0", "1", "2-9", "10-99", "100+")
"""Ranges of a label's number of training documents."""
_COSTS = {"training_seconds": "training, CPU s", "milliseconds": "a text, CPU ms"}
_DIGITS = {_COSTS["training_seconds"]: 0}


def read_sets(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each set, the highest P@5 first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        found.setdefault(row["set"], []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: -row["figures"]["bands"]["all"]["P@5"])
    return found


def tables_of(path: Path) -> dict[str, Any]:
    """Return the table of each set."""
    return {name: _table(rows) for name, rows in read_sets(path).items()}


def columns_of(row: dict[str, Any]) -> dict[str, float | None]:
    """Return the figures of a row: quality in percent, and costs."""
    figures = row["figures"]
    bands = figures["bands"]
    found = {name: bands["all"].get(name) for name in shown_in("leaderboard")}
    found["macro-F1@5 (1-9)"] = bands["1-9"]["macro-F1@5"]
    found |= {f"R@10 ({band})": bands[band]["R@10"] for band in BANDS}
    found |= {name: (figures["hierarchical"] or {}).get(name) for name in ("hP@5", "hR@5")}
    found |= figures["probabilities"]
    percent = {name: None if value is None else 100 * value for name, value in found.items()}
    return percent | {title: figures["costs"][name] for name, title in _COSTS.items()}


def _table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    every = [columns_of(row) for row in rows]
    columns = [{"name": name, "digits": _DIGITS.get(name, 2)} for name in every[0]]
    cells = [
        [_plain(row["figures"]["name"]), *each.values(), row["commit"]]
        for row, each in zip(rows, every, strict=True)
    ]
    return {"columns": [{"name": "row"}, *columns, {"name": "code"}], "rows": cells}


def _plain(text: str) -> str:
    """Return a text as a cell of a Markdown table that shows it as it is."""
    shown = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`|*\[\]])", r"\\\1", shown)
