"""Clients of the service over httpx: `Client`, and `AsyncClient` for asyncio.

The calls are written once, as coroutines. Those of `Client` wait for no event loop: each of them is
finished after its first step.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, update_wrapper
from inspect import isawaitable
from typing import Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar, cast

import httpx
from pydantic import HttpUrl, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from longtail.models.errors import ConfigError, LongtailError, RequestError
from longtail.models.interface.given_texts import texts_of
from longtail.models.parts.texts import check_several
from longtail.service.schemas.base import Problem
from longtail.service.schemas.feedback import FeedbackReceipts
from longtail.service.schemas.labels import LabelDetail, LabelList
from longtail.service.schemas.models import ModelChange, ModelList
from longtail.service.schemas.predict import BatchEnd, BatchError, BatchResult, PredictResponse

T = TypeVar("T")
Given = ParamSpec("Given")
Line: TypeAlias = str | Mapping[str, Any]
"""A text, or an object as `longtail.service.schemas.requests.BatchLine`."""
BatchAnswer: TypeAlias = BatchResult | BatchError
_Answers: TypeAlias = list[BatchResult | BatchError | BatchEnd]
_MAX_LINES = 256
_MAX_BYTES = 2**20
"""Lines of a batch, and bytes, after which a request is sent."""
_MAX_SHOWN_CHARACTERS = 500
_FIRST_WAIT_S = 0.25
_JITTER = 0.5
"""Each wait is lengthened at random by up to this share."""
_chance = random.SystemRandom()
_adapter: Any = cache(TypeAdapter)  # that of a batch takes a tenth of a second


class ClientError(LongtailError):
    """Base of what a client raises."""


class ConnectionFailedError(ClientError):
    """The service can't be reached, or the connection broke."""


class NoAnswerError(ClientError):
    """The service took a request and did not answer in time; it is not asked again."""


class IncompleteBatchError(ClientError):
    """A batch ended before all of its lines were answered; send those again that were not."""


class ProblemError(ClientError):
    """The service answered with a problem.

    Attributes:
        problem: Its document; compare `problem.type`.
        retry_after_s: Seconds after which to ask again, where the service says so.
    """

    def __init__(self, problem: Problem, retry_after_s: float | None = None) -> None:
        super().__init__(f"{problem.status} {problem.title}: {problem.detail}")
        self.problem = problem
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Retry:
    """How often to ask again after 429, 503 and broken connections.

    Attributes:
        max_attempts: With the first one.
        max_wait_s: Seconds between attempts, all together.
    """

    max_attempts: int = 5
    max_wait_s: float = 60.0

    def wait_s(self, attempt: int, waited_s: float, error: ClientError) -> float | None:
        """Return the seconds to wait after an attempt, from 1, that failed; None: ask no more."""
        wait_s = _FIRST_WAIT_S * 2 ** (attempt - 1)
        if isinstance(error, ProblemError) and error.problem.status in {429, 503}:
            wait_s = wait_s if error.retry_after_s is None else error.retry_after_s
        elif not isinstance(error, ConnectionFailedError):
            return None
        wait_s *= 1 + _JITTER * _chance.random()
        is_over = attempt >= self.max_attempts or waited_s + wait_s > self.max_wait_s
        return None if is_over else wait_s


NEVER = Retry(max_attempts=1)
_RETRY = Retry()


class _Connection:
    """Connections to a service, of either kind; with a `httpx.Client` no coroutine waits."""

    _http_class: Any
    _sleep: Any

    def __init__(
        self, url: str, *, key: str | None = None, timeout_s: float = 60.0, retry: Retry = _RETRY
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            url: The service's URL, with the path that a proxy may put before `/v1`.
            key: A key to ask with, or to change models with.
            timeout_s: Seconds to wait for an answer; loading a model may take longer.
            retry: What to do where the service is busy or away.

        Raises:
            ConfigError: The URL is none of a service.
        """
        try:
            base_url = str(_adapter(HttpUrl).validate_python(str(url)))
        except ValidationError as error:
            told = f"url is {url!r}: {error.errors()[0]['msg']}"
            raise ConfigError(f"{told}; expected http://localhost:8000, or the like") from error
        headers = {"User-Agent": "longtail-client", "Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._http = self._http_class(base_url=base_url, headers=headers, timeout=timeout_s)
        self._retry = retry

    async def _change(self, route: str, **options: Any) -> ModelChange:
        """Ask for a change of the models, which takes as long as it takes to load one."""
        timeout = httpx.Timeout(self._http.timeout.connect, read=None)
        return await self._ask(route, ModelChange, timeout=timeout, **options)

    async def _ask(self, route: str, shape: type[T], **options: Any) -> T:
        """Return the answer of a route, a method and a path (see `_content`)."""
        return _read(shape, await self._content(route, **options))

    async def _content(
        self, route: str, *, query: object = None, retry: Retry | None = None, **options: Any
    ) -> bytes:
        """Return the body of an answer; ask again as often as `retry` says, or that of the client.

        `query` has parameters, of which those that are None are left out; `options` are of httpx.
        """
        given = json.loads(_json(query or {}))
        options["params"] = {name: value for name, value in given.items() if value is not None}
        attempt, waited_s = 1, 0.0
        while True:
            try:
                return await self._content_now(route, options)
            except ClientError as error:
                wait_s = (retry or self._retry).wait_s(attempt, waited_s, error)
                if wait_s is None:
                    raise
            await _result(self._sleep(wait_s))
            attempt, waited_s = attempt + 1, waited_s + wait_s

    async def _content_now(self, route: str, options: Mapping[str, Any]) -> bytes:
        url = self._http.base_url
        try:
            response = await _result(self._http.request(*route.split(), **options))
        except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout) as error:
            raise NoAnswerError(f"{url} did not answer in time ({error!r})") from error
        except httpx.TransportError as error:
            raise ConnectionFailedError(f"{url} gives no answer ({error!r}); is it up?") from error
        if not response.is_success:
            raise _problem(response)
        content: bytes = response.content
        return content


async def _result(found: Any) -> Any:
    """Wait for what only the client for asyncio has to wait for."""
    return await found if isawaitable(found) else found


def _finished(call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing."""
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a call waits for an event loop")


def _at_once(
    call: Callable[Concatenate[Any, Given], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, Given], T]:
    def ask(client: Client, /, *args: Given.args, **options: Given.kwargs) -> T:
        return _finished(call(client, *args, **options))

    return update_wrapper(ask, call)


class AsyncClient(_Connection):
    """Asks the service from asyncio; belongs to one event loop. Close it, or use it as a context.

    Every method raises `ProblemError` where the service answers with a problem,
    `ConnectionFailedError` where it can't be reached, and `NoAnswerError` where it is too late;
    after 429, 503 and broken connections it has asked again before, as `Retry` says.
    """

    _http_class, _sleep = httpx.AsyncClient, staticmethod(asyncio.sleep)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def predict(self, /, texts: str | Iterable[str], **options: Any) -> PredictResponse:
        """Return the best labels of one text or several, as many as one request may have.

        Args:
            texts: None of them blank.
            **options: Those of `POST /v1/predict`: `k`, `scorer`, `threshold`, ..., `timeout_s`.
        """
        one = isinstance(texts, str)
        asked = {"text": texts_of([texts])[0]} if one else {"texts": list(texts_of(texts))}
        content = _json(asked | options)
        return await self._ask("POST /v1/predict", PredictResponse, content=content)

    async def stream_batch(
        self, lines: Iterable[Line], **options: Any
    ) -> AsyncGenerator[BatchAnswer, None]:
        """Yield the answer to each line in order, a result or an error.

        Args:
            lines: Any number of texts, or objects with `text`, `id` and options of their own; some
                hundred are taken at a time, and sent in one request.
            **options: What is asked for where a line says nothing.

        Raises:
            IncompleteBatchError: It ended early; send again the lines without answers.
        """
        check_several(lines, "lines")
        first = 0
        for chunk in _chunks(lines):
            answered = await self._content(
                "POST /v1/batch",
                query=options,
                content=chunk,
                headers={"Content-Type": "application/x-ndjson"},
            )
            end = None
            for answer in _read(_Answers, b"[%b]" % b",".join(answered.splitlines())):
                if isinstance(answer, BatchEnd):
                    end = answer.summary
                elif isinstance(answer, BatchError):
                    yield answer.model_copy(update={"index": first + answer.index})
                else:
                    yield replace(answer, index=first + answer.index)
            if end is None or not end.complete:
                told = end and end.error
                why = f"{told.title}: {told.detail}" if told else "the answer breaks off"
                raise IncompleteBatchError(f"the batch is not complete: {why}")
            first += chunk.count(b"\n")

    async def models(self) -> ModelList:
        """Return all versions of the registry."""
        return await self._ask("GET /v1/models", ModelList)

    async def labels(self, /, query: str = "", **options: Any) -> LabelList:
        """Return the labels that a query finds, and how many there are.

        Args:
            query: What names begin with, or words of them; empty: all labels.
            **options: Those of `GET /v1/labels`: `limit`, `offset`, `version`, ...
        """
        return await self._ask("GET /v1/labels", LabelList, query={"query": query, **options})

    async def label(self, /, label_id: str, **options: Any) -> LabelDetail:
        """Return all that is known of a label; `options` are `version` and `language`."""
        # As a parameter, because proxies decode and merge the slashes of an id in the path.
        return await self._ask("GET /v1/labels", LabelDetail, query={"id": label_id, **options})

    async def give_feedback(self, entries: Iterable[Mapping[str, Any]]) -> FeedbackReceipts:
        """Say which labels are right; entries as `longtail.service.schemas.feedback.FeedbackEntry`.

        One without an `id` gets one, so that it is stored once, however often it is sent.
        """
        named = [{"id": f"client-{secrets.token_hex(16)}", **entry} for entry in entries]
        return await self._ask(
            "POST /v1/feedback", FeedbackReceipts, content=_json({"entries": named})
        )

    async def is_ready(self) -> bool:
        """Return whether the service can predict now; asks once."""
        try:
            await self._ask("GET /readyz", dict, retry=NEVER)
        except (ProblemError, ConnectionFailedError):
            return False
        return True

    async def load(self, version: int) -> ModelChange:
        """Load a version beside the others."""
        return await self._change(f"POST /v1/admin/models/{version}/load")

    async def unload(self, version: int) -> ModelChange:
        """Unload a version."""
        return await self._change(f"POST /v1/admin/models/{version}/unload")

    async def activate(self, version: int) -> ModelChange:
        """Let `current` name this version, and answer with it."""
        return await self._change(f"POST /v1/admin/models/{version}/activate")

    async def rollback(self) -> ModelChange:
        """Go back to the version that was `current` before; never asked twice."""
        return await self._change("POST /v1/admin/rollback", retry=NEVER)

    async def set_canary(self, version: int, share: float) -> ModelChange:
        """Give a version a share, from 0 to 1, of the requests that name none."""
        content = _json({"version": version, "share": share})
        return await self._change("PUT /v1/admin/canary", content=content)

    async def end_canary(self) -> ModelChange:
        """Answer all requests that name no version with the default again."""
        return await self._change("DELETE /v1/admin/canary")


class Client(_Connection):
    """`AsyncClient` for callers without asyncio; several threads may share one.

    It has the methods of `AsyncClient`, each of which waits for its answer. Close it, or use it as
    a context.
    """

    _http_class, _sleep = httpx.Client, staticmethod(time.sleep)

    predict = _at_once(AsyncClient.predict)
    give_feedback = _at_once(AsyncClient.give_feedback)
    labels = _at_once(AsyncClient.labels)
    label = _at_once(AsyncClient.label)
    models = _at_once(AsyncClient.models)
    is_ready = _at_once(AsyncClient.is_ready)
    load = _at_once(AsyncClient.load)
    unload = _at_once(AsyncClient.unload)
    activate = _at_once(AsyncClient.activate)
    rollback = _at_once(AsyncClient.rollback)
    set_canary = _at_once(AsyncClient.set_canary)
    end_canary = _at_once(AsyncClient.end_canary)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def stream_batch(self, lines: Iterable[Line], **options: Any) -> Iterator[BatchAnswer]:
        """Yield the answer to each line in order; see `AsyncClient.stream_batch`."""
        answers = AsyncClient.stream_batch(cast("AsyncClient", self), lines, **options)
        with suppress(StopAsyncIteration):
            while True:
                yield _finished(answers.__anext__())


def _json(content: object) -> bytes:
    """Return ASCII, so that half of a surrogate pair is answered as other faults are."""
    try:
        return json.dumps(content, allow_nan=False, default=_plain, separators=(",", ":")).encode()
    except ValueError as error:
        raise RequestError(f"can't be sent as JSON ({error}); give finite numbers") from error


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else to_jsonable_python(value)  # of NumPy


def _read(shape: type[T], content: bytes) -> T:
    """Return an answer in its shape; fields that a newer service adds are left out."""
    try:
        found: T = _adapter(shape).validate_json(content, extra="ignore")
    except ValidationError as error:
        raise ClientError(
            f"the answer is no {error.title} as this release of the client knows it ({error}); "
            "is the URL that of a Longtail service?"
        ) from error
    return found


def _chunks(lines: Iterable[Line]) -> Iterator[bytes]:
    """Yield lines as they are sent, those of one request together."""
    chunk = b""
    for number, line in enumerate(lines):
        if not isinstance(line, str | Mapping):
            raise RequestError(f"line {number} is {line!r:.40}; expected a text, or an object")
        chunk += _json({"text": line} if isinstance(line, str) else dict(line)) + b"\n"
        if len(chunk) > _MAX_BYTES or chunk.count(b"\n") == _MAX_LINES:
            yield chunk
            chunk = b""
    if chunk:
        yield chunk


def _problem(response: httpx.Response) -> ProblemError:
    try:
        problem = Problem.model_validate_json(response.content, extra="ignore")
    except ValidationError:
        problem = Problem(
            type="about:blank",
            title="Not answered by Longtail",
            status=response.status_code,
            detail=response.content[:_MAX_SHOWN_CHARACTERS].decode(errors="replace"),
        )
    after = response.headers.get("retry-after", "")
    return ProblemError(problem, float(after) if after.isdecimal() else None)
