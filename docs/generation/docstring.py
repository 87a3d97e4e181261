"""Docstrings in Google style as Markdown."""

from __future__ import annotations

import re
import textwrap

_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Warns|Note):$")
_TITLES = {"Args": "Arguments"}
_ENTRY = re.compile(r"^(\*{0,2}[\w.\[\], ]+): (.*)$")


def render(text: str) -> str:
    """Return a docstring as Markdown: its paragraphs, then a list for each section."""
    parts, lines = [], text.strip().splitlines()
    starts = [number for number, line in enumerate(lines) if _SECTION.match(line)]
    parts.append("\n".join(lines[: starts[0] if starts else None]).strip())
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        title = lines[start].rstrip(":")
        body = textwrap.dedent("\n".join(lines[start + 1 : end])).strip()
        parts.append(f"{_TITLES.get(title, title)}:\n\n{_entries(body)}")
    return "\n\n".join(filter(None, parts))


def attributes_of(text: str) -> dict[str, str]:
    """Return what a class's docstring says of each of its attributes, in one line each."""
    body = text.split("Attributes:\n", 1)[1].split("\n\n", 1)[0]
    listed = _entries(textwrap.dedent(body).strip()).splitlines()
    return dict(re.fullmatch(r"- `(\w+)`: (.*)", line).groups() for line in listed)  # type: ignore[union-attr,misc]


def _entries(body: str) -> str:
    """Return the entries of a section as a list; an indented line goes on with the one before."""
    entries: list[str] = []
    for line in body.splitlines():
        if line.startswith(" ") and entries:
            entries[-1] += f" {line.strip()}"
        elif line.strip():
            entries.append(line.strip())
    return "\n".join("- " + _ENTRY.sub(r"`\1`: \2", entry) for entry in entries)
