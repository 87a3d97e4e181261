"""JSON as others wrote it, and as Longtail's own files have it."""

from __future__ import annotations

import json
from typing import Any, NoReturn


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


def strings_of(value: object, name: str) -> list[str]:
    """Return a value that must be a list of strings.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise TypeError(f"{name}: expected a list of strings")
    return value


def whole_number_of(value: object, name: str, least: int, most: int) -> int:
    """Return a value that must be a whole number from `least` to `most`.

    Raises:
        TypeError: It is something else.
    """
    if type(value) is not int or not least <= value <= most:
        raise TypeError(f"{name} {str(value)[:40]}, expected a whole number from {least} to {most}")
    return value


def truth_of(value: object, name: str) -> bool:
    """Return a value that must be true or false.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} {str(value)[:40]}, expected true or false")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _check_characters(value: object) -> None:
    json.dumps(value, ensure_ascii=False).encode()
