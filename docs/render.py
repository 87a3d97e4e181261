"""Fills the tables of the documents from the committed records of measurements.

    python docs/render.py

A table stands between two comments; what is between them is written by this program alone:

    <!-- table: FILE.json NAME -->
    <!-- end -->

FILE is in `docs/results` and is a record as `longtail.training.evaluation.record` writes it:
command, commit, date, processor, seeds and figures. `"transcribed": true` says that a person copied
the figures from a page that had no file. NAME is a path in its figures (`results/retrieval`), or
`scorers` for a record of `longtail evaluate`. It leads to one of three forms:

- `{"columns": [{"name": "P@1", "digits": 2, "best": "max"}, ...], "rows": [["a", 92.5], ...]}`;
- a list of objects: a row each, whose keys are the columns;
- an object of objects: the key of a row stands first.

A cell is text, a number, null, or `{"mean": 1.2, "standard_error": 0.1}`; `digits` and `bold` in a
cell's object hold for it alone. A row of the first form may be taken from another table:
`{"from": "FILE.json NAME", "row": "its first cell", "title": "another first cell"}`.

`leaderboard.json SET` asks for the table of a set, `first` for that of the README, and `modes`,
`otherwise`, `parts`, `probabilities` and `promises` for those of Longtail alone
(`generation/leaderboard.py`); `claims all` for the one that is counted from all tested findings
(`generation/claims.py`).

A line below the table names commit and date of its records, unless its last column or row is
`code`.

Options behind NAME: ` [a; b + c]` keeps the rows that have such a cell, or all of several;
`: P@1; P@5` chooses columns, in this order.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the code beside these pages, not an installed one

from docs.generation import leaderboard, leaderboard_page  # noqa: E402
from docs.generation.claims import claims_table  # noqa: E402

RESULTS = ROOT / "docs" / "results"
BOARD = RESULTS / "leaderboard-table.html"
CODE = "code"
KEYS = {"command", "commit", "date", "processor", "seeds", "figures"}
"""Required keys of a record; `transcribed` and `note` are optional."""

_BLOCK = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_DIRECTIVE = re.compile(
    r"(?P<file>\S+\.json|claims) (?P<name>[^:%[]+?)"
    r"( \[(?P<rows>.+?)\])?(: (?P<columns>.+))?"
)
TITLES = {
    "30-NN tf-idf": "30 nearest neighbours, tf-idf",
    "label names": "label names, no training",
}
_SUBSETS = {"all": "", "1-9": " (1-9 documents)", "0": " (no documents)"}

Table = dict[str, Any]


def pages() -> list[Path]:
    """Return the pages that have tables."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if "<!-- table: " in path.read_text(encoding="utf-8")]


def render_page(path: Path) -> str:
    """Return the text of a page with its tables filled."""

    def fill(block: re.Match[str]) -> str:
        try:
            table = find_table(block[2])
        except ValueError as error:
            raise ValueError(f"{path.relative_to(ROOT)}: {error}") from error
        has_code = block[2].startswith("claims") or CODE in (
            table["columns"][-1]["name"], table["rows"][-1][0],
        )  # fmt: skip
        code = "" if has_code else f"\n{code_of(block[2], path)}\n"
        return f"{block[1]}\n{markdown_of(table)}\n{code}\n{block[3]}"

    return _BLOCK.sub(fill, path.read_text(encoding="utf-8"))


def code_of(directive: str, page: Path) -> str:
    """Return the line of a page that says which record a table is of, and of which code."""
    path = RESULTS / directive.split()[0]
    record = json.loads(path.read_text(encoding="utf-8"))
    link = os.path.relpath(path, page.parent)
    return f"Code: [{record['commit'] or 'not noted'}]({link}), {record['date']}."


def find_table(directive: str) -> Table:
    """Return what a directive asks for.

    Raises:
        ValueError: It can't be read, or there are no such figures, rows or columns.
    """
    asked = _DIRECTIVE.fullmatch(directive)
    if asked is None:
        raise ValueError(f"table: {directive!r}; expected 'FILE.json NAME', options behind it")
    figures = _figures_of(asked["file"])
    table = form_of(_at(figures, asked["name"], asked["file"]), asked["name"])
    rows = [_own_row(row, table) if isinstance(row, Mapping) else row for row in table["rows"]]
    if asked["rows"]:
        kept = [set(each.split(" + ")) for each in asked["rows"].split("; ")]
        texts = [{_text(cell, {}) for cell in row} for row in rows]
        if missing := [x for x in kept if not any(x <= cells for cells in texts)]:
            raise ValueError(f"table {directive!r}: no row {' + '.join(sorted(missing[0]))!r}")
        are_kept = [any(x <= cells for x in kept) for cells in texts]
        rows = [row for row, is_kept in zip(rows, are_kept, strict=True) if is_kept]
    if not rows:
        raise ValueError(f"table {directive!r}: no rows")
    table = {"columns": table["columns"], "rows": rows}
    return _chosen(table, asked["columns"].split("; "), directive) if asked["columns"] else table


def _figures_of(file: str) -> dict[str, Any]:
    """Return the figures of a record, or the tables that are made of several."""
    if file == "claims":
        return {"all": claims_table(RESULTS)}
    if file == leaderboard.FILE:
        return leaderboard.tables_of(RESULTS / file)
    figures: dict[str, Any] = json.loads((RESULTS / file).read_text(encoding="utf-8"))["figures"]
    return figures


def markdown_of(table: Table) -> str:
    """Return a table in Markdown; the best number of a column that says so is bold."""
    cells_of = list(zip(*table["rows"], strict=True))  # by column
    shown = [
        _column(cells, column) for cells, column in zip(cells_of, table["columns"], strict=True)
    ]
    names = [column["name"] for column in table["columns"]]
    rulers = [
        "---:" if any(value_of(x) is not None for x in cells) else "---" for cells in cells_of
    ]
    lines = [_line(names), f"|{'|'.join(rulers)}|", *map(_line, zip(*shown, strict=True))]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def _column(cells: Sequence[Any], column: Mapping[str, Any]) -> list[str]:
    """Return the texts of a column, with those bold that look like its best number."""
    texts = [_text(cell, column) for cell in cells]
    numbers = {value: text for cell, text in zip(cells, texts, strict=True)
               if (value := value_of(cell)) is not None}  # fmt: skip
    best = None
    if "best" in column and numbers:
        best = numbers[{"max": max, "min": min}[column["best"]](numbers)]
    return [
        f"**{text}**" if text == best or (isinstance(cell, Mapping) and cell.get("bold")) else text
        for cell, text in zip(cells, texts, strict=True)
    ]


def _at(figures: Any, name: str, file: str) -> Any:
    """Return the figures at a path."""
    found = figures
    for key in name.split("/") if name not in figures else [name]:
        if not isinstance(found, Mapping) or key not in found:
            raise ValueError(f"{file}: no figures {name!r}; there is {', '.join(figures)}")
        found = found[key]
    return found


def form_of(found: Any, name: str) -> Table:
    """Return a table of any of the three forms in the first one."""
    if isinstance(found, Mapping) and "columns" in found:
        return dict(found)
    if name == "scorers":
        return _scorers(found)
    if isinstance(found, Mapping):
        found = [{"": key, **row} for key, row in found.items()]
    names = list(dict.fromkeys(key for row in found for key in row))
    return {
        "columns": [{"name": key} for key in names],
        "rows": [[row.get(key) for key in names] for row in found],
    }


def _scorers(scorers: Mapping[str, Any]) -> Table:
    """Return all metrics of a record of `longtail evaluate`, in percent, best P@1 first."""
    names = [
        (subset, metric)
        for subset in _SUBSETS
        for metric in next(iter(scorers.values()))[subset]["values"]
    ]
    columns = [{"name": "scorer"}] + [
        {"name": metric + _SUBSETS[subset], "digits": 2, "best": "max"} for subset, metric in names
    ]
    rows = [
        [
            TITLES.get(scorer, f"`{scorer}`"),
            *(100 * subsets[subset]["values"][metric] for subset, metric in names),
        ]
        for scorer, subsets in scorers.items()
    ]
    return {"columns": columns, "rows": sorted(rows, key=lambda row: -row[1])}


def _own_row(row: Mapping[str, str], table: Table) -> list[Any]:
    """Return a row of another table, with the columns of this one."""
    other = find_table(row["from"])
    (cells,) = (cells for cells in other["rows"] if cells[0] == row["row"])
    of_name = dict(zip((column["name"] for column in other["columns"]), cells, strict=True))
    return [row["title"], *(of_name.get(column["name"]) for column in table["columns"][1:])]


def _chosen(table: Table, names: Sequence[str], directive: str) -> Table:
    """Return the first column and some of the others."""
    of_name = {column["name"]: place for place, column in enumerate(table["columns"])}
    if unknown := [name for name in names if name not in of_name]:
        raise ValueError(f"table {directive!r}: no columns {unknown}; there is {list(of_name)}")
    places = [0, *(of_name[name] for name in names)]
    return {
        "columns": [table["columns"][place] for place in places],
        "rows": [[row[place] for place in places] for row in table["rows"]],
    }


def _text(cell: Any, column: Mapping[str, Any]) -> str:
    if cell is None or isinstance(cell, str):
        return cell or ""
    if isinstance(cell, bool):
        return "yes" if cell else "**no**"
    own = cell if isinstance(cell, Mapping) else {}
    digits = own.get("digits", column.get("digits"))
    numbers = [x for x in (value_of(cell), own.get("standard_error")) if x is not None]
    return " ± ".join(f"{x:,}" if digits is None else f"{x:,.{digits}f}" for x in numbers)


def value_of(cell: Any) -> int | float | None:
    """Return the number of a cell; None for one without."""
    if isinstance(cell, Mapping):
        return cell.get("mean")
    return cell if isinstance(cell, int | float) and not isinstance(cell, bool) else None


def main() -> None:
    """Fill the tables of all pages."""
    try:
        made = {path: render_page(path) for path in pages()}
    except ValueError as error:
        sys.exit(f"Error: {error}")
    made[BOARD] = leaderboard_page.page(RESULTS / leaderboard.FILE)
    for path, filled in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != filled:
            path.write_text(filled, encoding="utf-8")
            print(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
