"""Markdown that all generated pages share: the notice, tables, values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

NOTICE = "<!-- Generated from {source} by docs/generate.py: change it there, not here. -->"


def page(title: str, source: str, *parts: str) -> str:
    """Return a page: its title, the notice that it is generated, and its parts."""
    return "\n\n".join([f"# {title}", NOTICE.format(source=source), *filter(None, parts)]) + "\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; empty without rows."""
    lines = ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
    if not lines:
        return ""
    head = "| " + " | ".join(headings) + " |"
    return "\n".join([head, "|" + "---|" * len(headings), *lines])


def cell(text: str) -> str:
    """Return a text as one cell: on one line, its bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")


def code(value: object) -> str:
    """Return a value in code type, as a user writes it; nothing where there is none."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple | list):
        return f"`{','.join(map(str, value))}`" if value else ""
    if isinstance(value, Path):
        return f"`{value.as_posix()}`"
    return f"`{value}`"


def sentence(text: str | None) -> str:
    """Return a docstring's or help text's first paragraph on one line, without reST backticks."""
    first = (text or "").strip().split("\n\n")[0]
    return re.sub(r"``([^`]*)``", r"`\1`", " ".join(first.split()))


def bounds(metadata: Iterable[object]) -> str:
    """Return the bounds that a pydantic field's metadata gives, as in "1 to 64"."""
    found: dict[str, object] = {}
    for item in metadata:
        for name in ("ge", "gt", "le", "lt"):
            limit = getattr(item, name, None)
            if limit is not None:
                found[name] = limit
    lower = f"{found['ge']}" if "ge" in found else f"above {found['gt']}" if "gt" in found else ""
    upper = f"{found['le']}" if "le" in found else f"below {found['lt']}" if "lt" in found else ""
    if lower and upper:
        return f"{lower} to {upper}"
    if "ge" in found:
        return f"at least {lower}"
    return lower or (f"at most {upper}" if "le" in found else upper)
