"""A batch of any length as requests of a few hundred lines: lines are taken while answers come.

The arguments of a client's callers are checked here, and written as they are sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias

import httpx

from longtail.models.errors import ConfigError, RequestError, check_count
from longtail.models.interface.given_texts import is_frame, texts_of
from longtail.models.parts.texts import check_several
from longtail.service.client.calls import ClientError, IncompleteBatchError, check_success, read_as
from longtail.service.schemas.predict import BatchEnd, BatchError, BatchResult, BatchSummary

_MAX_SHOWN_CHARACTERS = 40
_A_URL = "expected the service's, with http:// or https:// in front: http://localhost:8000"


def url_of(url: object) -> httpx.URL:
    """Return the URL of a service."""
    try:
        found = httpx.URL(str(url))
    except httpx.InvalidURL as error:
        raise ConfigError(f"url is {url!r}, which is no URL ({error}); {_A_URL}") from error
    if found.scheme not in {"http", "https"} or not found.host:
        raise ConfigError(f"url is {url!r}; {_A_URL}")
    return found


def text_chunks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Return texts in lists of this length, the last one perhaps shorter, as they are read."""
    check_count("chunk_texts", size)
    if is_frame(texts):
        texts = texts_of(texts)
    check_several(texts)
    return _chunks_of(iter(texts), int(size))


def check_lines(lines: object) -> None:
    """Refuse one line where several are wanted."""
    if not isinstance(lines, AsyncIterator):
        check_several(lines, "lines")


def line_of(line: object, number: int) -> bytes:
    """Return a line of a batch as it is sent.

    Args:
        line: A text, or an object as `longtail.service.schemas.predict.BatchLine`.
        number: Its own, from 0.
    """
    if not isinstance(line, str | Mapping):
        raise RequestError(
            f"line {number} is {_shown(line)}; expected a text, or an object with 'text'"
        )
    content = {"text": line} if isinstance(line, str) else dict(line)
    # ASCII, so that half of a surrogate pair is answered as the other faults of a line are.
    return _json(content, ensure_ascii=True).encode() + b"\n"


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Return an object as JSON in UTF-8; numbers and arrays of NumPy become those of JSON."""
    try:
        return _json(content, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{', '.join(content)}: a text of these holds half of a surrogate pair; send "
            "well-formed Unicode"
        ) from error


def query_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as parameters of a URL; options that are None are left out."""
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
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy
        return value.tolist()
    if isinstance(value, Set):
        return list(value)
    raise RequestError(
        f"{_shown(value)} can't be sent; expected texts, numbers, true or false, or lists of them"
    )


def _shown(value: object) -> str:
    return f"{repr(value)[:_MAX_SHOWN_CHARACTERS]} ({type(value).__name__})"


Line: TypeAlias = str | Mapping[str, Any]
"""A text, or an object as `longtail.service.schemas.predict.BatchLine`."""
BatchAnswer: TypeAlias = BatchResult | BatchError
Answered: TypeAlias = tuple[list[BatchAnswer], BatchSummary | None]
"""The answers to the lines of a request, and how they ended; None: they break off."""

MAX_LINES = 256
MAX_BYTES = 2**16
"""Most lines of a request, and bytes unless one line has more. A server takes so many bytes even
while it waits for the client to read the first answers."""
MAX_REQUESTS = 2
"""Requests at a time: the service has the next one while the client reads an answer."""


async def answers_to(
    lines: Iterable[Line] | AsyncIterator[Line], ask: Callable[[bytes], Awaitable[Answered]]
) -> AsyncGenerator[list[BatchAnswer], None]:
    """Yield the answers to the lines of each request, in order.

    Args:
        lines: Taken as fast as they are answered; on another thread, if they are not a sequence.
            A request has the lines that are there, so that one line does not wait for others.
        ask: Sends a request.
    """
    waiting = asyncio.Queue[bytes | None](MAX_LINES)
    requests = asyncio.Queue[asyncio.Future[Answered] | None]()
    free = asyncio.Semaphore(MAX_REQUESTS)
    taking = asyncio.create_task(_take(lines, waiting))
    sending = asyncio.create_task(_send(waiting, requests, free, ask))
    first = 0
    try:
        while (request := await requests.get()) is not None:
            answers, summary = await request
            free.release()
            yield [_numbered(each, first + each.index) for each in answers]
            first += len(answers)
            if summary is None or not summary.complete:
                raise IncompleteBatchError(summary)
        await taking
    finally:
        sending.cancel()
        taking.cancel()
        while not requests.empty():
            if (request := requests.get_nowait()) is not None:
                request.cancel()
        await asyncio.gather(sending, taking, return_exceptions=True)


def _numbered(answer: BatchAnswer, index: int) -> BatchAnswer:
    if isinstance(answer, BatchError):
        return answer.model_copy(update={"index": index})
    return replace(answer, index=index)


async def _take(
    lines: Iterable[Line] | AsyncIterator[Line], waiting: asyncio.Queue[bytes | None]
) -> None:
    number = 0
    try:
        async for line in _one_by_one(lines):
            await waiting.put(line_of(line, number))
            number += 1
    except Exception:
        await waiting.put(None)
        raise
    await waiting.put(None)


async def _send(
    waiting: asyncio.Queue[bytes | None],
    requests: asyncio.Queue[asyncio.Future[Answered] | None],
    free: asyncio.Semaphore,
    ask: Callable[[bytes], Awaitable[Answered]],
) -> None:
    """Start a request with the lines that wait, whenever one may be started."""
    line = await waiting.get()
    while line is not None:
        await free.acquire()
        chunk, num_lines = line, 1
        next_line: bytes | None = b""
        while not waiting.empty():
            next_line = waiting.get_nowait()
            if next_line is None or num_lines == MAX_LINES:
                break
            if len(chunk) + len(next_line) > MAX_BYTES:
                break
            chunk, next_line = chunk + next_line, b""
            num_lines += 1
        requests.put_nowait(asyncio.ensure_future(ask(chunk)))
        line = await waiting.get() if next_line == b"" else next_line
    requests.put_nowait(None)


async def _one_by_one(lines: Iterable[Line] | AsyncIterator[Line]) -> AsyncIterator[Line]:
    if isinstance(lines, AsyncIterator):
        async for line in lines:
            yield line
    elif isinstance(lines, Sequence):
        for line in lines:
            yield line
    else:
        iterator, end = iter(lines), object()
        # On another thread, because it may block, and answers come meanwhile.
        while (found := await asyncio.to_thread(next, iterator, end)) is not end:
            yield found  # type: ignore[misc]  # it is not `end`


def read_batch(response: httpx.Response) -> Answered:
    """Return the answers to the lines of a request."""
    check_success(response)
    answers: list[BatchAnswer] = []
    for line in response.content.splitlines():
        answer = _answer_of(line)
        if isinstance(answer, BatchEnd):
            return answers, answer.summary
        answers.append(answer)
    return answers, None


def _answer_of(line: bytes) -> BatchAnswer | BatchEnd:
    try:
        content = json.loads(line)
    except ValueError as error:
        raise ClientError(f"a line of the answer is not JSON ({error})") from error
    if "summary" in content:
        return read_as(BatchEnd, content)
    return read_as(BatchError, content) if "error" in content else read_as(BatchResult, content)
