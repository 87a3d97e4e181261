"""Tables of the leaderboard, from its one file, as `tests/bench/leaderboard/board.py` writes it.

No number is bold; the file has the intervals. Rows of older code of Longtail stand last in each
table.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from longtail.models.metrics import shown_in

FILE = "leaderboard.json"
BANDS = ("0", "1", "2-9", "10-99", "100+")
"""Ranges of a label's number of training documents."""
OURS, HISTORY = "Longtail", "Longtail, older code"
"""What `of` says in rows of Longtail, measured with this code or an older one."""
_COSTS = {
    "training_seconds": "training, CPU s",
    "training_wall_seconds": "training, s",
    "memory_gib": "memory, GiB",
    "bundle_mib": "bundle, MiB",
    "milliseconds": "a text, CPU ms",
    "title_milliseconds": "a title alone, CPU ms",
    "document_milliseconds": "a document alone, CPU ms",
}
_DIGITS = {_COSTS[name]: 0 for name in ("training_seconds", "training_wall_seconds", "bundle_mib")}
_PLAIN = "Longtail, no encoder"
_CODE_ROW = "code"
_CODE = Path(__file__).parents[2] / "longtail"
_FIRST = (
    ("eurlex57k", "Longtail, no encoder", "EURLEX57K, 4,271 labels: Longtail, without an encoder"),
    ("eurlex57k", "Longtail, phrases", "EURLEX57K: with phrases"),
    ("eurlex57k", "omikuji, Bonsai", "EURLEX57K: omikuji, Bonsai"),
    ("eurlex57k", "Annif, ensemble with MLLM", "EURLEX57K: Annif, ensemble"),
    ("tate", "Longtail, no encoder", "Tate, 16,455 subjects: Longtail"),
    ("library-keywords", "Longtail, no encoder", "library records, 141,858 keywords: Longtail"),
)
_FIRST_COLUMNS = {
    "P@1": "the best is right",
    "P@5": "of the five best, right",
    "R@10 (0)": "labels without documents found among ten",
}


@cache
def code_digest() -> str:
    """Return 12 hex digits of the code that figures depend on, without comments and docstrings."""
    found = hashlib.sha256()
    parts = [_CODE / "models", _CODE / "training"]
    paths = [path for part in parts for path in part.rglob("*")]
    for path in sorted(x for x in paths if x.suffix in (".py", ".c", ".h", ".yaml")):
        found.update(str(path.relative_to(_CODE)).encode())
        found.update(_without_words(path).encode())
    return found.hexdigest()[:12]


def _without_words(path: Path) -> str:
    """Return a source without the lines of comments and docstrings, and without blank ones."""
    text = path.read_text(encoding="utf-8")
    lines = dict(enumerate(text.splitlines(), start=1))
    for node in ast.walk(ast.parse(text)) if path.suffix == ".py" else ():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                lines.pop(number, None)
    comment = "//" if path.suffix in (".c", ".h") else "#"
    kept = [x for x in lines.values() if x.strip() and not x.lstrip().startswith(comment)]
    return "\n".join(kept)


def read_sets(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each set, the highest P@5 first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        found.setdefault(row["set"], []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: (is_older(row), -row["figures"]["bands"]["all"]["P@5"]))
    return found


def is_older(row: dict[str, Any]) -> bool:
    """Whether a row is of older code of Longtail."""
    return bool(row["figures"].get("of") == HISTORY)


def tables_of(path: Path) -> dict[str, Any]:
    """Return the table of each set, that of the README, and those of what only our rows have."""
    sets = read_sets(path)
    tables = {name: _table(rows) for name, rows in sets.items()}
    rows = [_first_row(tables[name], row, title) for name, row, title in _FIRST if name in tables]
    columns = [{"name": name, "digits": 1} for name in _FIRST_COLUMNS.values()]
    names = [{"name": "test, in percent"}, *columns, {"name": "code"}]
    ours = [row for rows in sets.values() for row in rows if row["figures"].get("of") == OURS]
    plain = [row for row in ours if row["figures"]["name"] == _PLAIN]
    return tables | {
        "first": {"columns": names, "rows": rows},
        "modes": _modes(ours),
        "otherwise": _otherwise(ours),
        "parts": _parts(plain),
        "probabilities": _probabilities(plain),
        "promises": _promises(plain),
    }


def _table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return quality and costs of the rows of a set."""
    lines = [([_plain(row["figures"]["name"])], columns_of(row), row) for row in rows]
    return _listed(["row"], lines, digits=2)


def _modes(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return quality and costs of each mode on each corpus."""
    lines = [
        ([_plain(row["set"]), _plain(row["figures"]["name"])], columns_of(row), row) for row in rows
    ]
    return _listed(["corpus", "mode"], lines, digits=2)


def _otherwise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the measures of each scorer by itself, and of rankings for rare labels."""
    lines = [
        ([_plain(row["set"]), _plain(row["figures"]["name"]), name], _percent(found), row)
        for row in rows
        for name, found in row["figures"].get("otherwise", {}).items()
    ]
    return _listed(["corpus", "mode", "ranked by"], lines, digits=2)


def _probabilities(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the calibration of the first five labels by band."""
    lines = [
        ([_plain(row["set"]), band], _percent(found), row)
        for row in rows
        for band, found in row["figures"]["calibration"].items()
    ]
    return _listed(["corpus", "training documents"], lines)


def _promises(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what each promise lets through on test."""
    lines = []
    for row in rows:
        for name, kept in row["figures"].get("promises", {}).items():
            shares = _percent(kept)
            low, high = shares.pop("lower"), shares.pop("upper")
            lines.append(
                ([_plain(row["set"]), name], shares | {"95 %": f"{low:.1f} to {high:.1f}"}, row)
            )
    return _listed(["corpus", "promise"], lines)


def _parts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the blend, names, and what the blend gains without a scorer, by corpus."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        parts = row["figures"].get("parts", {})
        code = dict.fromkeys(next(iter(parts.values()), ()), code_of(row))
        for scorer, cells in (parts | {_CODE_ROW: code}).items():
            found.setdefault(scorer, {}).update(
                {f"{_plain(row['set'])}: {name}": cell for name, cell in cells.items()}
            )
    found[_CODE_ROW] = found.pop(_CODE_ROW, {})  # the last one
    names = list(dict.fromkeys(name for cells in found.values() for name in cells))
    return {
        "columns": [{"name": "scorer"}, *({"name": name, "digits": 2} for name in names)],
        "rows": [[scorer, *map(cells.get, names)] for scorer, cells in found.items()],
    }


def _percent(shares: Mapping[str, float | None]) -> dict[str, Any]:
    return {name: None if x is None else 100 * x for name, x in shares.items()}


def _listed(
    first: Sequence[str],
    lines: Sequence[tuple[Sequence[str], Mapping[str, Any], dict[str, Any]]],
    digits: int = 1,
) -> dict[str, Any]:
    """Return a table of lines: first cells, values by column, and the row that they are of."""
    names = list(dict.fromkeys(name for _, values, _ in lines for name in values))
    columns = [{"name": name, "digits": _DIGITS.get(name, digits)} for name in names]
    return {
        "columns": [*({"name": name} for name in first), *columns, {"name": "code"}],
        "rows": [[*cells, *map(values.get, names), code_of(row)] for cells, values, row in lines],
    }


def _first_row(table: dict[str, Any], row: str, title: str) -> list[Any]:
    """Return some columns of a row, under another name."""
    names = [column["name"] for column in table["columns"]]
    cells = next((cells for cells in table["rows"] if cells[0] == row), None)
    if cells is None:
        raise ValueError(f"{FILE}: no row {row!r}, which the table 'first' shows")
    return [title, *(cells[names.index(x)] for x in (*_FIRST_COLUMNS, "code"))]


def columns_of(row: dict[str, Any]) -> dict[str, float | None]:
    """Return the figures of a row: quality in percent, and costs."""
    figures = row["figures"]
    bands = figures["bands"]
    found = {name: bands["all"].get(name) for name in shown_in("leaderboard")}
    found["macro-F1@5 (1-9)"] = bands["1-9"]["macro-F1@5"]
    found |= {f"R@10 ({band})": bands[band]["R@10"] for band in BANDS}
    found |= {name: (figures["hierarchical"] or {}).get(name) for name in ("hP@5", "hR@5")}
    found |= figures["probabilities"]
    return _percent(found) | {title: figures["costs"].get(name) for name, title in _COSTS.items()}


def code_of(row: dict[str, Any]) -> str:
    """Return the commit of a row, and whether it is older code."""
    return f"{row['commit']}, older" if is_older(row) else str(row["commit"])


def _plain(text: str) -> str:
    """Return a text as a cell of a Markdown table that shows it as it is."""
    shown = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`|*\[\]])", r"\\\1", shown)
