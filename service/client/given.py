"""What callers of a client give, as it is sent; refused where it can't be."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import Any

import httpx

from longtail.models.arguments import check_count
from longtail.models.errors import ConfigError, RequestError
from longtail.models.interface.given_texts import is_frame, texts_of
from longtail.models.parts.texts import check_several

_MAX_SHOWN_CHARACTERS = 40
_A_URL = "expected the service's, with http:// or https:// in front: http://localhost:8000"


def url_of(url: object) -> httpx.URL:
    """Return the URL of a service.

    Raises:
        ConfigError: It is none that can be asked.
    """
    try:
        found = httpx.URL(str(url))
    except httpx.InvalidURL as error:
        raise ConfigError(f"url is {url!r}, which is no URL ({error}); {_A_URL}") from error
    if found.scheme not in {"http", "https"} or not found.host:
        raise ConfigError(f"url is {url!r}; {_A_URL}")
    return found


def text_chunks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Return texts in lists of this length, the last one perhaps shorter, as they are read.

    Raises:
        RequestError: They are one text or no texts, or the length is no number from 1.
    """
    check_count("chunk_texts", size)
    if is_frame(texts):
        texts = texts_of(texts)
    check_several(texts)
    return _chunks_of(iter(texts), int(size))


def check_lines(lines: object) -> None:
    """Refuse one line where several are wanted.

    Raises:
        RequestError: It is a text, an object, or nothing to iterate over.
    """
    if not isinstance(lines, AsyncIterator):
        check_several(lines, "lines")


def line_of(line: object, number: int) -> bytes:
    """Return a line of a batch as it is sent.

    Args:
        line: A text, or an object as `longtail.service.schemas.batch.BatchLine`.
        number: Its own, from 0.

    Raises:
        RequestError: It is neither.
    """
    if not isinstance(line, str | Mapping):
        raise RequestError(
            f"line {number} is {_shown(line)}; expected a text, or an object with 'text'"
        )
    content = {"text": line} if isinstance(line, str) else dict(line)
    # ASCII, so that half of a surrogate pair is answered as the other faults of a line are.
    return _json(content, ensure_ascii=True).encode() + b"\n"


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Return an object as JSON in UTF-8; numbers and arrays of NumPy become those of JSON.

    Raises:
        RequestError: It holds something that JSON has no form for.
    """
    try:
        return _json(content, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{', '.join(content)}: a text of these holds half of a surrogate pair; send "
            "well-formed Unicode"
        ) from error


def query_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as parameters of a URL; those that are None are left out.

    Raises:
        RequestError: One can't be written.
    """
    given = {name: value for name, value in options.items() if value is not None}
    plain: dict[str, Any] = json.loads(json_bytes(given))
    return plain


def _chunks_of(items: Iterator[str], size: int) -> Iterator[list[str]]:
    while chunk := list(islice(items, size)):
        yield chunk


def _json(content: Mapping[str, Any], *, ensure_ascii: bool) -> str:
    try:
        return json.dumps(
            content,
            ensure_ascii=ensure_ascii,
            allow_nan=False,
            default=_plain,
            separators=(",", ":"),
        )
    except ValueError as error:
        raise RequestError(
            f"{', '.join(content)}: can't be written as JSON ({error}); give finite numbers"
        ) from error


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy
        return value.tolist()
    if isinstance(value, Set):
        return list(value)
    raise RequestError(
        f"{_shown(value)} can't be sent; expected texts, numbers, true or false, or lists of them"
    )


def _shown(value: object) -> str:
    return f"{repr(value)[:_MAX_SHOWN_CHARACTERS]} ({type(value).__name__})"
