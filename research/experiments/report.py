"""Reports of experiments in Markdown: the tables of their records, as the documents show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from docs.render import form_of, markdown_of

_UNITS = "Metrics and differences in percent, mean ± standard error over the seeds."
_TESTS = (
    "Findings are tested together, and their p-values are corrected for their number by Holm's "
    'method; "contrary" is what a two-sided test says, corrected alike.'
)


def report_markdown(title: str, tables: Mapping[str, Any], words: str = "") -> str:
    """Return a page with all tables of a record.

    Args:
        title: The heading.
        tables: Tables by name, or by task and name, in any form of `docs/render.py`.
        words: What was measured on.
    """
    parts = [f"# {title}", *([words] if words else []), _UNITS, *([_TESTS] if "findings" in tables
             else [])]  # fmt: skip
    parts += [
        f"## {name}\n\n{markdown_of(table)}" for name, table in _tables_in(tables) if table["rows"]
    ]
    return "\n\n".join(parts) + "\n"


def _tables_in(found: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, each in found.items():
        if "columns" not in each and all("columns" in inner for inner in each.values()):
            yield from _tables_in(each, f"{place}{name}, ")
        else:
            yield place + name, form_of(each, name)
