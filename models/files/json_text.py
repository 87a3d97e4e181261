"""JSON as others wrote it, and as Longtail's own files have it."""

from __future__ import annotations

import json
from typing import Any, NoReturn

MAX_ELEMENTS = 2**17
"""Of texts that don't hold something of each label, word or document."""
MANY_ELEMENTS = 2**24
"""Of texts that do; each takes 32 bytes or more while a text is parsed."""


def check_elements(text: str | bytes, most: int) -> None:
    """Refuse a text in JSON with more elements than expected, before it is parsed.

    Raises:
        ValueError: It has more commas, in strings or between elements.
    """
    found = text.count(",") if isinstance(text, str) else text.count(b",")
    if found > most:
        raise ValueError(f"got {found} commas, expected at most {most}")


def parse_json(text: str | bytes) -> Any:
    """Return what a text in JSON says.

    Raises:
        ValueError: It is not JSON, or brackets are nested in it too deeply to be read.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("brackets are nested too deeply") from error


def parse_own_json(text: str) -> Any:
    """Return what a text in JSON says that Longtail wrote: standard JSON, all of it Unicode text.

    Raises:
        ValueError: It is not, or holds NaN, Infinity or half of a surrogate pair.
    """
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
        if "\\u" in text:  # only an escape can spell what no text file can hold
            _check_characters(found)
    except RecursionError as error:
        raise ValueError("brackets are nested too deeply") from error
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _check_characters(value: object) -> None:
    json.dumps(value, ensure_ascii=False).encode()
