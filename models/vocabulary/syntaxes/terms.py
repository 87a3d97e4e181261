"""The terms that N-Triples and Turtle share, as patterns, and what their escapes stand for."""

from __future__ import annotations

import re
from urllib.parse import urljoin

from longtail.models.errors import DataError

IRI = r"<[^\x00-\x20<>\"]*+>"
BLANK_NODE = r"_:\w(?:[\w.\-\u00b7]*[\w\-\u00b7])?"
LANGUAGE = r"[A-Za-z]++(?:-[A-Za-z0-9]++)*+"


class TermError(DataError):
    """A term of RDF that means nothing; the message is the bare reason."""


_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.?))", re.DOTALL)
_CHARACTER = {
    "t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\",
}  # fmt: skip
_LAST_CODE_POINT = 0x10FFFF


def unescaped(text: str) -> str:
    r"""Return a text with the characters that its escapes (\n, \u00e9) stand for.

    Raises:
        TermError: An escape stands for none.
    """
    if "\\" not in text:
        return text
    text = _ESCAPE.sub(_character, text)
    if text.isascii():
        return text
    try:  # two escapes may be the halves of one surrogate pair
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise TermError(
            "an escape stands for half of a surrogate pair; expected Unicode text"
        ) from error


def _character(found: re.Match[str]) -> str:
    four, eight, single = found.groups()
    if four or eight:
        code = int(four or eight, 16)
        if code <= _LAST_CODE_POINT:
            return chr(code)
    elif single in _CHARACTER:
        return _CHARACTER[single]
    raise TermError(
        f"unknown escape {found.group()!r}; expected one of \\t \\b \\n \\r \\f \\\" \\' \\\\, "
        "\\uXXXX or \\UXXXXXXXX up to 10FFFF"
    )


def absolute(iri: str, base: str) -> str:
    """Return an IRI as it is, or resolved against a base where it is relative.

    Raises:
        TermError: It is relative, and there is no base.
    """
    if ":" in iri:
        return iri
    if not base:
        raise TermError(f"the IRI {iri!r} is relative; write it in full, or give a base")
    return urljoin(base, iri)
