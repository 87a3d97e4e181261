"""The leaderboard as one HTML file: sorted by any column, by frequency band; readable without scripts.

It holds its figures, style and script, and fetches nothing.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from docs.generation.leaderboard import BANDS, columns_of, read_rows

TITLES = {
    "demo": "The demo data",
    "tate": "tate",
    "eurlex57k": "EURLEX57K",
    "library-keywords": "library-keywords",
}
"""Titles of the data sets, in the order of the page."""
_MEASURES = ("R@10", "nDCG@10", "PSP@5", "macro-F1@5")
_ALL = "all labels"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #8884; padding: .25rem .6rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th button { font: inherit; background: none; border: 0; cursor: pointer; padding: 0; }
th[aria-sort=ascending] button::after { content: " ▲"; }
th[aria-sort=descending] button::after { content: " ▼"; }
[hidden] { display: none; }
"""
_SCRIPT = """
for (const table of document.querySelectorAll("table")) {
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.onclick = () => {
      const up = head.getAttribute("aria-sort") === "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const column = head.cellIndex, value = (row) => {
        const text = row.cells[column].textContent;
        return text === "" ? null : isNaN(text) ? text : Number(text);
      };
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const x = value(a), y = value(b);
        if (x === null || y === null) return (x === null) - (y === null); // empty cells come last
        return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
      });
      table.tBodies[0].append(...rows);
    };
  }
}
const pick = document.getElementById("pick");
pick.hidden = false;
pick.onchange = (event) => {
  for (const part of document.querySelectorAll("[data-band]"))
    part.hidden = part.dataset.band !== event.target.value;
};
pick.onchange({ target: pick.querySelector("select") });
"""


def page(folder: Path) -> str:
    """Return the page of all sets that have rows.

    Args:
        folder: With a folder for each set.
    """
    names = [name for name in TITLES if (folder / name).is_dir()]
    options = "".join(f"<option>{band}</option>" for band in (_ALL, *BANDS))
    parts = [_section(TITLES[name], read_rows(folder / name)) for name in names]
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Leaderboard</title>\n'
        f"<style>{_STYLE}</style>\n<h1>Leaderboard</h1>\n"
        "<p>Test splits, in percent; CPU seconds and milliseconds. A click on a heading sorts. "
        "What the columns mean, how rows were made and which differ by more than chance: "
        '<a href="leaderboard.html">the leaderboard of the documents</a>.</p>\n'
        f'<p id="pick" hidden><label>Labels by training documents: <select>{options}</select>'
        f"</label></p>\n{''.join(parts)}<script>{_SCRIPT}</script>\n</html>\n"
    )


def _section(title: str, rows: list[dict[str, Any]]) -> str:
    measured = [columns_of(row) for row in rows]
    names = [name for name in measured[0] if any(each[name] is not None for each in measured)]
    costs = {"milliseconds": "a text, CPU ms", "training_seconds": "training, CPU s"}
    every = [
        [*(each[name] for name in names), *(row["figures"]["costs"][name] for name in costs)]
        for row, each in zip(rows, measured, strict=True)
    ]
    parts = [_table(rows, [*names, *costs.values()], every, _ALL)]
    for band in BANDS:
        cells = [
            [None if (x := row["figures"]["bands"][band].get(name)) is None else 100 * x for name in _MEASURES]
            for row in rows
        ]  # fmt: skip
        parts.append(_table(rows, list(_MEASURES), cells, band))
    return f"<h2>{escape(title)}</h2>\n{''.join(parts)}"


def _table(
    rows: list[dict[str, Any]], names: list[str], cells: list[list[float | None]], band: str
) -> str:
    heads = "".join(f"<th>{escape(name)}</th>" for name in ("row", *names))
    lines = []
    for row, values in zip(rows, cells, strict=True):
        shown = "".join(f"<td>{'' if x is None else f'{x:.2f}'}</td>" for x in values)
        about = escape(f"{row['figures']['version']}; {row['figures']['settings']}")
        lines.append(f'<tr><td title="{about}">{escape(row["figures"]["name"])}</td>{shown}</tr>\n')
    caption = band if band == _ALL else f"labels with {band} training documents"
    return (
        f'<div data-band="{band}"><table><caption>{caption}</caption>\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{''.join(lines)}</tbody></table></div>\n"
    )
