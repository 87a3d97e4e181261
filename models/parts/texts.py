"""Texts as callers give them: what can't be ranked is refused by its place in the list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from longtail.models.errors import RequestError
from longtail.models.files.rows import NUL


def joined_text(*parts: str | None) -> str:
    """Return the parts of a text that have words, its title first, with line feeds between them."""
    return "\n".join(part for part in parts if part and part.strip())


def checked_texts(texts: Iterable[object]) -> Sequence[str]:
    """Return texts as a list or tuple of strings."""
    check_several(texts)
    found = texts if isinstance(texts, list | tuple) else list(texts)
    for number, text in enumerate(found):
        _check(number, text)
    return cast("Sequence[str]", found)


def check_several(data: object, what: str = "texts") -> None:
    """Refuse what would be taken apart into something else than texts, or can't be at all."""
    if isinstance(data, str | bytes):
        raise RequestError(
            f"{what} is a single {type(data).__name__}, expected a list of {what}; "
            "for one text give a list of one: [text]"
        )
    if isinstance(data, Mapping | set | frozenset) or not hasattr(data, "__iter__"):
        raise RequestError(f"{what} are a {type(data).__name__}, expected a list of {what}")


def _check(number: int, text: object) -> None:
    if (fault := fault_of(text)) is not None:
        raise RequestError(f"text {number} {fault}")


def fault_of(text: object) -> str | None:
    """Return why a text can't be ranked and what to do, as the end of a sentence; None: it can."""
    if not isinstance(text, str):
        return f"is {repr(text)[:40]} ({type(text).__name__}), expected a string"
    if not text.strip():
        return "is blank; give it some words, or leave it out"
    if NUL in text:
        return "holds a NUL character; remove it"
    if not _is_unicode(text):
        return "holds half of a surrogate pair; send well-formed Unicode"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
