"""Texts without HTML: tags are taken out, and character references become characters.

What only looks like HTML stays: "a < b", "x<y>z", "AT&T;". A tag is that of an element of HTML. One
that begins an element whose end must be marked counts only where it has an attribute in quotes, or
where the text has an end tag of that name, so that `List<Object>` and "cp <data>" stay as they are.
A reference counts only where it is well-formed: "&szlig;", "&#223;" or "&#xDF;". References are
read once: "&amp;lt;" becomes "&lt;", and "&lt;b&gt;" becomes "<b>".
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.entities import html5
from typing import TypeAlias

import numpy as np
from jaxtyping import Int64

Replacement: TypeAlias = tuple[int, int, str]
"""First character of a piece of markup, the one behind its last, and what it becomes."""

_MARKUP = re.compile(
    r"<(?P<end>/?)(?P<name>[a-zA-Z][a-zA-Z0-9]*)(?P<rest>[\s/][^<>]*)?>"
    r"|(?P<comment><!--)"
    r"|&(?P<reference>\#[0-9]{1,7}|\#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});"
)
_END_TAG = re.compile(r"</([a-zA-Z][a-zA-Z0-9]*)\s*>")
_BEGINNING = re.compile(r"[^\s>;]+[>;]?")
_ATTRIBUTE = re.compile(r"""=\s*["']""")
_INLINE_NAMES = (
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img input ins kbd label mark "
    "nobr q s samp small span strike strong sub sup time tt u var wbr"
)
_INLINE = frozenset(_INLINE_NAMES.split())
"""Elements within a line: "<b>W</b>ord" is one word."""
_BLOCK_NAMES = (
    "address article aside blockquote body br button caption center col colgroup dd details dialog "
    "dir div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 head header hr html "
    "iframe legend li link main map menu meta nav noscript object ol optgroup option p param pre "
    "section select summary svg table tbody td template textarea tfoot th thead title tr ul "
    "video"
)
_BLOCKS = frozenset(_BLOCK_NAMES.split())
"""Elements that begin a new line."""
_SKIPPED = frozenset(("script", "style"))
"""Elements whose content is no text."""
_NAMES_WITHOUT_END = "br dd dt hr img li p tbody td tfoot th thead tr wbr"
_NEEDS_NO_END = frozenset(_NAMES_WITHOUT_END.split())
_COMMENT_END = "-->"
_SOFT_HYPHEN = "\xad"


def without_markup(text: str) -> str:
    """Return a text without HTML; one that has none as it is."""
    parts: list[str] = []
    at = 0
    for start, stop, new in _replacements(text):
        parts += (text[at:start], new)
        at = stop
    return "".join(parts) + text[at:] if at else text


def has_markup(text: str) -> bool:
    """Return whether a text has a tag or a character reference of HTML."""
    return bool(first_markup(text))


def first_markup(text: str) -> str:
    """Return the first character reference, or tag without what follows its name; "" of none."""
    start, stop, _ = next(_replacements(text), (0, 0, ""))
    found = _BEGINNING.match(text, start, stop)
    return found[0] if found else ""


def placed_without_markup(
    text: str,
) -> tuple[str, Int64[np.ndarray, character], Int64[np.ndarray, character]]:
    """Return a text without HTML, and where each of its characters comes from.

    Returns:
        What `without_markup` does, and for each character of it the first character of its source
        in the text, and the one behind the last.
    """
    parts: list[str] = []
    starts: list[range | list[int]] = []
    stops: list[range | list[int]] = []
    at = 0
    for start, stop, new in [*_replacements(text), (len(text), len(text), "")]:
        parts += (text[at:start], new)
        starts += (range(at, start), [start] * len(new))
        stops += (range(at + 1, start + 1), [stop] * len(new))
        at = stop
    joined = [
        np.array([x for each in some for x in each], dtype=np.int64) for some in (starts, stops)
    ]
    return "".join(parts), joined[0], joined[1]


def _replacements(text: str) -> Iterator[Replacement]:
    """Yield the pieces of markup in a text, in order; in time that grows as its length does."""
    if "<" not in text and "&" not in text:
        return
    last_ends = {match[1].lower(): match.end() for match in _END_TAG.finditer(text)}
    last_comment_end = text.rfind(_COMMENT_END)
    at = 0
    while match := _MARKUP.search(text, at):
        start, stop = match.span()
        new: str | None
        if match["comment"]:
            new = " " if stop <= last_comment_end else None
            stop = text.find(_COMMENT_END, stop) + len(_COMMENT_END) if new else stop
        elif match["reference"]:
            new = _character(match["reference"])
        else:
            new = _of_tag(match, last_ends)
            name = match["name"].lower()
            if new is not None and name in _SKIPPED and not match["end"]:
                stop = _end_of(text, name, stop)
        if new is None:
            at = start + 1
        else:
            yield start, stop, new
            at = stop


def _of_tag(match: re.Match[str], last_ends: dict[str, int]) -> str | None:
    """Return what a tag becomes; None where it is no tag of HTML."""
    name, rest = match["name"].lower(), (match["rest"] or "").strip(" \t\r\n\f/")
    if name in _INLINE:
        new = ""
    elif name in _BLOCKS or name in _SKIPPED:
        new = "\n"
    else:
        return None
    if match["end"]:
        return None if rest else new
    if _ATTRIBUTE.search(rest) and name not in _SKIPPED:
        return new
    has_end = last_ends.get(name, 0) > match.end()
    is_plain = not rest or "=" in rest
    return new if is_plain and (has_end or name in _NEEDS_NO_END) else None


def _end_of(text: str, name: str, start: int) -> int:
    """Return where the end tag of an element ends that has one behind a place."""
    return next(x.end() for x in _END_TAG.finditer(text, start) if x[1].lower() == name)


def _character(reference: str) -> str | None:
    """Return what a reference stands for; None where it stands for nothing."""
    if not reference.startswith("#") and f"{reference};" not in html5:
        return None
    found = html.unescape(f"&{reference};")
    return "" if found == _SOFT_HYPHEN else found
