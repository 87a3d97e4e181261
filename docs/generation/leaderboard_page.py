"""The leaderboard as one HTML file: sorted by any column; readable without scripts.

It holds its figures, style and script, and fetches nothing.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from docs.generation.leaderboard import code_of, columns_of, read_sets

TITLES = {
    "demo_data": "The demo data",
    "tate": "tate",
    "eurlex57k": "EURLEX57K",
    "library-keywords": "library-keywords",
}
"""Titles of the data sets, in the order of the page."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #8884; padding: .25rem .6rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th button { font: inherit; background: none; border: 0; cursor: pointer; padding: 0; }
th[aria-sort=ascending] button::after { content: " ▲"; }
th[aria-sort=descending] button::after { content: " ▼"; }
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
"""


def page(path: Path) -> str:
    """Return the page of all sets of the leaderboard's file."""
    rows_of = read_sets(path)
    parts = [_section(title, rows_of[name]) for name, title in TITLES.items() if name in rows_of]
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Leaderboard</title>\n'
        f"<style>{_STYLE}</style>\n<h1>Leaderboard</h1>\n"
        "<p>Test splits, in percent; CPU seconds and milliseconds. R@10 (1-9) is of labels with 1 to "
        "9 training documents. A click on a heading sorts. What the columns mean and how rows were "
        'made: <a href="leaderboard.html">the leaderboard of the documents</a>.</p>\n'
        f"{''.join(parts)}<script>{_SCRIPT}</script>\n</html>\n"
    )


def _section(title: str, rows: list[dict[str, Any]]) -> str:
    every = [columns_of(row) for row in rows]
    heads = "".join(f"<th>{escape(name)}</th>" for name in ("row", *every[0], "code"))
    lines = []
    for row, values in zip(rows, every, strict=True):
        shown = "".join(f"<td>{'' if x is None else f'{x:.2f}'}</td>" for x in values.values())
        about = escape(f"{row['figures']['version']}; {row['figures']['settings']}")
        name, code = escape(row["figures"]["name"]), code_of(row)
        lines.append(f'<tr><td title="{about}">{name}</td>{shown}<td>{code}</td></tr>\n')
    return (
        f"<h2>{escape(title)}</h2>\n<table>\n<thead><tr>{heads}</tr></thead>\n"
        f"<tbody>\n{''.join(lines)}</tbody></table>\n"
    )
