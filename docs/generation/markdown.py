"""Markdown that all generated pages share: tables and values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path


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
