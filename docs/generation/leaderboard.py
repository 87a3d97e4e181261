"""Tables of the leaderboard, from the records of its rows in `docs/results/leaderboard/SET/`.

A row is a record as `tests/bench/leaderboard/row.py` writes it. No number is bold: which rows differ
by more than chance is said by the tests of `differences.json`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

BANDS = ("0", "1", "2-9", "10-99", "100+")
"""Ranges of a label's number of training documents."""
_DIFFERENCES = "differences.json"
_MAIN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@5", "R@10", "macro-F1@5")
_COSTS = ("training_seconds", "tuning_seconds", "memory_gib", "milliseconds")
_SHOWN_COSTS = {"training_seconds": ("training, CPU s", 0), "milliseconds": ("a text, CPU ms", 2)}


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a set, by P@5."""
    paths = [path for path in sorted(folder.glob("*.json")) if path.name != _DIFFERENCES]
    return sorted(map(_read_row, paths), key=lambda row: -row["figures"]["bands"]["all"]["P@5"])


def _read_row(path: Path) -> dict[str, Any]:
    """Read the record of a row."""
    try:
        row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        columns_of(row)
        costs = [row["figures"]["costs"][name] for name in _COSTS]
        about = [
            row["command"],
            *(row["figures"][name] for name in ("name", "version", "settings")),
        ]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: no record of a row ({error!r}); row.py writes them") from error
    if not all(isinstance(each, str) for each in about):
        raise ValueError(f"{path}: name, version, settings and command are to be texts")
    if not all(each is None or isinstance(each, int | float) for each in costs):
        raise ValueError(f"{path}: costs {costs} are to be numbers or null")
    return row


def _plain(text: str) -> str:
    """Return a text as a cell of a Markdown table that shows it as it is."""
    shown = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`|*\[\]])", r"\\\1", shown)


def tables_of(folder: Path) -> dict[str, Any]:
    """Return all tables of a set, by the name that a page asks for.

    Args:
        folder: Of its records.
    """
    rows = read_rows(folder)
    found = {"overall": _overall(rows), "bands R@10": _bands(rows, "R@10")}
    if (folder / _DIFFERENCES).exists():
        found["differences"] = json.loads((folder / _DIFFERENCES).read_text())["figures"]["tests"]
    return found


def columns_of(row: dict[str, Any]) -> dict[str, float | None]:
    """Return the figures of a row that the first table shows, in percent."""
    figures = row["figures"]
    everything = figures["bands"]["all"]
    found = {name: everything[name] for name in _MAIN}
    found["macro-F1@5 (1-9)"] = figures["bands"]["1-9"].get("macro-F1@5")
    found |= {name: (figures["hierarchical"] or {}).get(name) for name in ("hP@5", "hR@5")}
    found |= figures["probabilities"]
    return {name: None if value is None else 100 * value for name, value in found.items()}


def _overall(rows: list[dict[str, Any]]) -> dict[str, Any]:
    every = [columns_of(row) for row in rows]
    names = [name for name in every[0] if any(each[name] is not None for each in every)]
    columns = [*((name, 2) for name in names), *_SHOWN_COSTS.values()]
    cells = [
        [*(each[x] for x in names), *(row["figures"]["costs"][x] for x in _SHOWN_COSTS)]
        for row, each in zip(rows, every, strict=True)
    ]
    return _table(rows, columns, cells)


def _bands(rows: list[dict[str, Any]], measure: str) -> dict[str, Any]:
    cells = [
        [None if (x := row["figures"]["bands"][band].get(measure)) is None else 100 * x for band in BANDS]
        for row in rows
    ]  # fmt: skip
    return _table(rows, [(band, 2) for band in BANDS], cells)


def _table(
    rows: list[dict[str, Any]], columns: list[tuple[str, int]], cells: list[list[Any]]
) -> dict[str, Any]:
    headed: list[dict[str, Any]] = [{"name": "row"}]
    headed += [{"name": name, "digits": digits} for name, digits in columns]
    named = [[_plain(row["figures"]["name"]), *each] for row, each in zip(rows, cells, strict=True)]
    return {"columns": headed, "rows": named}
