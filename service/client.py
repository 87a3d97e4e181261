"""Clients of the service over httpx: `Client`, and `AsyncClient` for asyncio.

The calls are written once, as coroutines that wait for nothing but `_Calls._send` and `_pause`;
`Client` sends at once there, so that a coroutine is finished after its first step.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeAlias, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

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
_MAX_LINES = 256
_MAX_BYTES = 2**20
"""Most lines of a batch, and bytes unless one line has more, that are sent in one request."""
_MAX_SHOWN_CHARACTERS = 500
_chance = random.SystemRandom()


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
        first_wait_s: Seconds before the second attempt where the service names none; then doubled.
        jitter: Each wait is lengthened at random by up to this share.
    """

    max_attempts: int = 5
    max_wait_s: float = 60.0
    first_wait_s: float = 0.25
    jitter: float = 0.5

    def wait_s(self, attempt: int, waited_s: float, error: ClientError) -> float | None:
        """Return the seconds to wait before the next attempt; None where there is none.

        Args:
            attempt: Number of the one that failed, from 1.
            waited_s: Seconds that were waited before it.
            error: How it failed.
        """
        asked = None
        if isinstance(error, ProblemError) and error.problem.status in {429, 503}:
            asked = error.retry_after_s
        elif not isinstance(error, ConnectionFailedError):
            return None
        wait_s = self.first_wait_s * 2 ** (attempt - 1) if asked is None else asked
        wait_s *= 1 + self.jitter * _chance.random()
        is_over = attempt >= self.max_attempts or waited_s + wait_s > self.max_wait_s
        return None if is_over else wait_s


NEVER = Retry(max_attempts=1)
_RETRY = Retry()


class _Calls:
    """The calls of both clients. A call that fails raises a `ClientError` (see its subclasses)."""

    def __init__(self, http: httpx.Client | httpx.AsyncClient, retry: Retry) -> None:
        self._http, self._retry = http, retry

    async def _send(self, method: str, path: str, options: Mapping[str, Any]) -> httpx.Response:
        assert isinstance(self._http, httpx.AsyncClient)
        return await self._http.request(method, path, **options)

    async def _pause(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)

    async def predict(self, texts: str | Sequence[str], **options: Any) -> PredictResponse:
        """Return the best labels of one text or several, as many as one request may have.

        Args:
            texts: None of them blank.
            **options: Those of `POST /v1/predict`: `k`, `scorer`, `threshold`, ..., `timeout_s`.
        """
        is_one = isinstance(texts, str)
        asked = {"text": texts_of([texts])[0]} if is_one else {"texts": list(texts_of(texts))}
        return await self._ask("POST", "/v1/predict", PredictResponse, body={**asked, **options})

    async def stream_batch(
        self, lines: Iterable[Line], **options: Any
    ) -> AsyncIterator[BatchAnswer]:
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
            answers, end = await self._ask("POST", "/v1/batch", _batch, lines=chunk, query=options)
            for answer in answers:
                yield _numbered(answer, first + answer.index)
            if end is None or not end.summary.complete:
                told = end.summary.error if end is not None else None
                why = "the answer breaks off" if told is None else f"{told.title}: {told.detail}"
                raise IncompleteBatchError(f"the batch is not complete: {why}")
            first += len(answers)

    async def models(self) -> ModelList:
        """Return all versions of the registry."""
        return await self._ask("GET", "/v1/models", ModelList)

    async def labels(
        self,
        query: str = "",
        *,
        limit: int = 20,
        offset: int = 0,
        version: int | Literal["current"] | None = None,
    ) -> LabelList:
        """Return the labels that a query finds, and how many there are."""
        asked = {"query": query, "limit": limit, "offset": offset, "version": version}
        return await self._ask("GET", "/v1/labels", LabelList, query=asked)

    async def label(
        self, label_id: str, *, version: int | Literal["current"] | None = None
    ) -> LabelDetail:
        """Return all that is known of a label."""
        # As a parameter, because proxies decode and merge the slashes of an id in the path.
        asked = {"id": label_id, "version": version}
        return await self._ask("GET", "/v1/labels", LabelDetail, query=asked)

    async def give_feedback(self, entries: Sequence[Mapping[str, Any]]) -> FeedbackReceipts:
        """Say which labels are right; entries as `longtail.service.schemas.feedback.FeedbackEntry`.

        One without an `id` gets one, so that it is stored once, however often it is sent.
        """
        named = [{"id": f"client-{secrets.token_hex(16)}", **entry} for entry in entries]
        return await self._ask("POST", "/v1/feedback", FeedbackReceipts, body={"entries": named})

    async def is_ready(self) -> bool:
        """Return whether the service can predict now; asks once."""
        try:
            await self._ask("GET", "/readyz", dict, retry=NEVER)
        except (ProblemError, ConnectionFailedError):
            return False
        return True

    async def load(self, version: int) -> ModelChange:
        """Load a version beside the others."""
        return await self._change("POST", f"models/{version}/load")

    async def unload(self, version: int) -> ModelChange:
        """Unload a version."""
        return await self._change("POST", f"models/{version}/unload")

    async def activate(self, version: int) -> ModelChange:
        """Let `current` name this version, and answer with it."""
        return await self._change("POST", f"models/{version}/activate")

    async def rollback(self) -> ModelChange:
        """Go back to the version that was `current` before; never asked twice."""
        return await self._change("POST", "rollback", retry=NEVER)

    async def set_canary(self, version: int, share: float) -> ModelChange:
        """Give a version a share, from 0 to 1, of the requests that name none."""
        return await self._change("PUT", "canary", body={"version": version, "share": share})

    async def end_canary(self) -> ModelChange:
        """Answer all requests that name no version with the default again."""
        return await self._change("DELETE", "canary")

    async def _change(self, method: str, path: str, **asked: Any) -> ModelChange:
        """Ask for a change of the models, which takes as long as it takes to load one."""
        timeout = httpx.Timeout(self._http.timeout.connect, read=None)
        return await self._ask(method, f"/v1/admin/{path}", ModelChange, timeout=timeout, **asked)

    async def _ask(
        self,
        method: str,
        path: str,
        shape: type[T] | Callable[[httpx.Response], T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        lines: bytes | None = None,
        retry: Retry | None = None,
        **options: Any,
    ) -> T:
        """Return what an answer says; ask again as often as `retry` says.

        Args:
            method: HTTP method.
            path: The route's path.
            shape: Class of the answer, or what reads it.
            query: Parameters; those that are None are left out.
            body: JSON of the body.
            lines: JSON lines of the body.
            retry: None: as the client was made.
            **options: Options of httpx.
        """
        if query is not None:
            options["params"] = {x: json.loads(_json(y)) for x, y in query.items() if y is not None}
        if body is not None:
            options |= {"content": _json(body), "headers": {"Content-Type": "application/json"}}
        if lines is not None:
            options |= {"content": lines, "headers": {"Content-Type": "application/x-ndjson"}}
        attempt, waited_s = 1, 0.0
        while True:
            try:
                response = await self._sent(method, path, options)
                return (
                    _read(shape, response.content) if isinstance(shape, type) else shape(response)
                )
            except (ProblemError, ConnectionFailedError) as error:
                wait_s = (retry or self._retry).wait_s(attempt, waited_s, error)
                if wait_s is None:
                    raise
            await self._pause(wait_s)
            attempt, waited_s = attempt + 1, waited_s + wait_s

    async def _sent(self, method: str, path: str, options: Mapping[str, Any]) -> httpx.Response:
        url = self._http.base_url
        try:
            response = await self._send(method, path, options)
        except httpx.ConnectTimeout as error:
            raise ConnectionFailedError(f"{url} gives no answer ({error!r})") from error
        except httpx.TimeoutException as error:
            raise NoAnswerError(f"{url} did not answer in time ({error!r})") from error
        except httpx.TransportError as error:
            raise ConnectionFailedError(f"{url} gives no answer ({error!r}); is it up?") from error
        if not response.is_success:
            raise _problem(response)
        return response


class AsyncClient(_Calls):
    """Asks the service from asyncio; belongs to one event loop. Close it, or use it as a context.

    Every method raises `ProblemError` where the service answers with a problem,
    `ConnectionFailedError` where it can't be reached, and `NoAnswerError` where it is too late;
    after 429, 503 and broken connections it has asked again before, as `Retry` says.
    """

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
        http = httpx.AsyncClient(base_url=_url(url), headers=_headers(key), timeout=timeout_s)
        super().__init__(http, retry)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        assert isinstance(self._http, httpx.AsyncClient)
        await self._http.aclose()


class _CallsAtOnce(_Calls):
    """The same, where nothing is waited for by an event loop."""

    async def _send(self, method: str, path: str, options: Mapping[str, Any]) -> httpx.Response:
        assert isinstance(self._http, httpx.Client)
        return self._http.request(method, path, **options)

    async def _pause(self, wait_s: float) -> None:
        time.sleep(wait_s)  # noqa: ASYNC251  # nothing else runs on this "loop"


def _finished(call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing."""
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a call waits for an event loop")


def _at_once(
    call: Callable[Concatenate[_Calls, Given], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, Given], T]:
    def ask(client: Client, /, *args: Given.args, **options: Given.kwargs) -> T:
        return _finished(call(client._calls, *args, **options))

    return update_wrapper(ask, call)


class Client:
    """`AsyncClient` for callers without asyncio; several threads may share one.

    It has the methods of `AsyncClient`, each of which waits for its answer. Close it, or use it as
    a context.
    """

    predict = _at_once(_Calls.predict)  # type: ignore[arg-type]  # `self` by position
    give_feedback = _at_once(_Calls.give_feedback)
    labels = _at_once(_Calls.labels)
    label = _at_once(_Calls.label)
    models = _at_once(_Calls.models)
    is_ready = _at_once(_Calls.is_ready)
    load = _at_once(_Calls.load)
    unload = _at_once(_Calls.unload)
    activate = _at_once(_Calls.activate)
    rollback = _at_once(_Calls.rollback)
    set_canary = _at_once(_Calls.set_canary)
    end_canary = _at_once(_Calls.end_canary)

    def __init__(
        self, url: str, *, key: str | None = None, timeout_s: float = 60.0, retry: Retry = _RETRY
    ) -> None:
        """Prepare; see `AsyncClient`."""
        self._http = httpx.Client(base_url=_url(url), headers=_headers(key), timeout=timeout_s)
        self._calls = _CallsAtOnce(self._http, retry)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def stream_batch(self, lines: Iterable[Line], **options: Any) -> Iterator[BatchAnswer]:
        """Yield the answer to each line in order; see `AsyncClient.stream_batch`."""
        check_several(lines, "lines")
        answers = self._calls.stream_batch(lines, **options)
        end = object()
        while (answer := _finished(_next(answers, end))) is not end:
            assert isinstance(answer, BatchResult | BatchError)
            yield answer


async def _next(answers: AsyncIterator[BatchAnswer], end: object) -> object:
    return await anext(answers, end)


def _url(url: object) -> httpx.URL:
    expected = "expected the service's, with http:// or https:// in front: http://localhost:8000"
    try:
        found = httpx.URL(str(url))
    except httpx.InvalidURL as error:
        raise ConfigError(f"url is {url!r}, which is no URL ({error}); {expected}") from error
    if found.scheme not in {"http", "https"} or not found.host:
        raise ConfigError(f"url is {url!r}; {expected}")
    return found


def _headers(key: str | None) -> dict[str, str]:
    bearer = {} if key is None else {"Authorization": f"Bearer {key}"}
    return {"User-Agent": "longtail-client", **bearer}


def _line(line: object, number: int) -> bytes:
    if not isinstance(line, str | Mapping):
        raise RequestError(f"line {number} is {line!r:.40}; expected a text, or an object")
    return _json({"text": line} if isinstance(line, str) else dict(line)) + b"\n"


def _json(content: object) -> bytes:
    """Return ASCII, so that half of a surrogate pair is answered as other faults are."""
    try:
        return json.dumps(content, allow_nan=False, default=_plain, separators=(",", ":")).encode()
    except ValueError as error:
        raise RequestError(f"can't be written as JSON ({error}); give finite numbers") from error


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy
        return value.tolist()
    if isinstance(value, set | frozenset):
        return list(value)
    raise RequestError(f"{value!r:.40} ({type(value).__name__}) can't be sent as JSON")


def _read(shape: type[T], content: bytes | Mapping[str, Any]) -> T:
    """Return an answer in its shape; fields that a newer service adds are left out."""
    try:
        adapter: TypeAdapter[T] = TypeAdapter(shape)
        if isinstance(content, bytes):
            return adapter.validate_json(content, extra="ignore")
        return adapter.validate_python(content, extra="ignore")
    except ValidationError as error:
        raise ClientError(
            f"the answer is no {shape.__name__} as this release of the client knows it ({error}); "
            "is the URL that of a Longtail service?"
        ) from error


def _chunks(lines: Iterable[Line]) -> Iterator[bytes]:
    """Yield lines as they are sent, those of one request together."""
    chunk: list[bytes] = []
    for number, line in enumerate(lines):
        content = _line(line, number)
        if chunk and sum(map(len, chunk)) + len(content) > _MAX_BYTES:
            yield b"".join(chunk)
            chunk = []
        chunk.append(content)
        if len(chunk) == _MAX_LINES:
            yield b"".join(chunk)
            chunk = []
    if chunk:
        yield b"".join(chunk)


def _batch(response: httpx.Response) -> tuple[list[BatchAnswer], BatchEnd | None]:
    """Return the answers to the lines of a request, and the end; None where it breaks off."""
    answers: list[BatchAnswer] = []
    for line in response.content.splitlines():
        try:
            content = json.loads(line)
        except ValueError as error:
            raise ClientError(f"a line of the answer is not JSON ({error})") from error
        if "summary" in content:
            return answers, _read(BatchEnd, content)
        is_error = "error" in content
        answers.append(_read(BatchError, content) if is_error else _read(BatchResult, content))
    return answers, None


def _numbered(answer: BatchAnswer, index: int) -> BatchAnswer:
    if isinstance(answer, BatchError):
        return answer.model_copy(update={"index": index})
    return replace(answer, index=index)


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
