"""Texts as callers give them: what can't be ranked is refused by its place in the list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from models.errors import RequestError


def checked_texts(texts: Iterable[object]) -> Sequence[str]:
    """Return texts as a list or tuple of strings.

    Raises:
        RequestError: It is a single string; or one of them is no string, is blank, or is not
            Unicode text.
    """
    if isinstance(texts, str | bytes):
        raise RequestError(
            f"texts is a single {type(texts).__name__}, expected a list of texts; "
            "for one text give a list of one: [text]"
        )
    found = texts if isinstance(texts, list | tuple) else list(texts)
    for number, text in enumerate(found):
        _check(number, text)
    return cast("Sequence[str]", found)


def _check(number: int, text: object) -> None:
    if not isinstance(text, str):
        shown = repr(text)[:40]
        raise RequestError(f"text {number} is {shown} ({type(text).__name__}), expected a string")
    if not text.strip():
        raise RequestError(f"text {number} is blank; give it some words, or leave it out")
    if not _is_unicode(text):
        raise RequestError(
            f"text {number} holds half of a surrogate pair; send well-formed Unicode"
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
