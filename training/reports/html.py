"""Pieces of a self-contained HTML page: tables, pictures, the page around them.

Everything is inline, all text is escaped, and the only script sorts tables: the page's policy lets
no other one run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from longtail.training.evaluation.record import Cells

_SORT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const text = (row) => row.cells[column].textContent;
      const order = (one, other) => isNaN(parseFloat(one) - parseFloat(other))
        ? one.localeCompare(other) : parseFloat(one) - parseFloat(other);
      const [blank, filled] = [[], []];
      for (const row of body.rows) (text(row) ? filled : blank).push(row);
      body.append(...filled.sort((one, other) => sign * order(text(one), text(other))), ...blank);
    });
  });
}
"""
_HASH = base64.b64encode(hashlib.sha256(_SORT.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'"
)
_NO_BREAK_HYPHEN = "&#8209;"
_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --page: #ffffff; --soft: #57606a;
  --line: #d0d7de; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e6e6; --page: #171717; --soft: #a3a3a3;
  --line: #3d3d3d; --card: #222222; }
  img { filter: invert(.91) hue-rotate(180deg); } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; color: var(--text);
  background: var(--page); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 1rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; padding-top: .75rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p { max-width: 45rem; }
.note { color: var(--soft); }
.wide { overflow-x: auto;
  /* A shadow at a side: the table continues there; what is painted over it scrolls along. */
  background: linear-gradient(to right, var(--page) 40%, transparent) left / 4rem 100% local,
    linear-gradient(to left, var(--page) 40%, transparent) right / 4rem 100% local,
    linear-gradient(to right, var(--line), transparent) left / 1rem 100% scroll,
    linear-gradient(to left, var(--line), transparent) right / 1rem 100% scroll;
  background-repeat: no-repeat; }
@media print { body { max-width: none; padding: 0; }
  .wide { overflow: visible; background: none; }
  table { width: 100%; font-size: .6rem; } th, td { padding: .15rem .2rem; }
  th:first-child, td:first-child { white-space: normal; }
  img, tr { break-inside: avoid; } }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .87rem; }
th, td { padding: .3rem .45rem; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
thead th { color: var(--soft); font-weight: 600; }
tbody th { font-weight: 400; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid; }
[aria-sort=ascending] button::after { content: " \\25b2"; }
[aria-sort=descending] button::after { content: " \\25bc"; }
img { max-width: 100%; height: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
details { margin: .5rem 0; } summary { cursor: pointer; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 1rem;
  overflow-x: auto; font-size: .82rem; }
""".strip()


def page(title: str, sections: Iterable[str]) -> str:
    """Return a whole page.

    Args:
        title: Plain text.
        sections: HTML.
    """
    return "\n".join([
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        *sections,
        f"<script>{_SORT}</script></body></html>",
        "",
    ])  # fmt: skip


def section(heading: str, *parts: str) -> str:
    """Return a section; the parts are HTML, the heading is plain text."""
    return "\n".join([f"<section><h2>{escape(heading)}</h2>", *parts, "</section>"])


def note(text: str) -> str:
    """Return a paragraph of plain text that explains."""
    return f'<p class="note">{escape(text)}</p>'


def facts(found: Mapping[str, str]) -> str:
    """Return names with their values, all plain text."""
    rows = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in found.items())
    return f"<dl>{''.join(rows)}</dl>"


def table(cells: Cells, *, mark_best: bool = False, is_sortable: bool = False) -> str:
    """Return a table.

    Args:
        cells: Heading and rows, plain text.
        mark_best: Whether the largest number of each column stands out.
        is_sortable: Whether a click on a heading sorts by its column.
    """
    header, rows = cells
    best = [_largest(column) if mark_best else None for column in zip(*rows, strict=True)]
    unbroken = (escape(cell).replace("-", _NO_BREAK_HYPHEN) for cell in header)
    kind = ' class="sortable"' if is_sortable else ""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in unbroken)
    body = "".join(f"<tr>{_row(row, best)}</tr>" for row in rows)
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Table">'
        f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(row: Sequence[str], best: Sequence[float | None]) -> str:
    first, *others = row
    cells = [f'<th scope="row">{escape(first)}</th>']
    for cell, largest in zip(others, best[1:], strict=True):
        is_best = largest is not None and _number(cell) == largest
        cells.append(
            f"<td>{'<b>' if is_best else ''}{escape(cell)}{'</b>' if is_best else ''}</td>"
        )
    return "".join(cells)


def _largest(column: Sequence[str]) -> float | None:
    numbers = [number for cell in column if (number := _number(cell)) is not None]
    return max(numbers) if len(numbers) > 1 else None


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def picture(png: bytes, description: str) -> str:
    """Return a picture; on a dark page its greys are inverted and its hues stay.

    Args:
        png: Drawn on white.
        description: What it shows, for readers who can't see it.
    """
    data = base64.b64encode(png).decode("ascii")
    return f'<img src="data:image/png;base64,{data}" alt="{escape(description)}">'


def folded(summary: str, content: str) -> str:
    """Return content, as HTML, behind a line of plain text that opens it."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def preformatted(text: str) -> str:
    """Return plain text as it is."""
    return f"<pre>{escape(text)}</pre>"
