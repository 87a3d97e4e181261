"""A client of the service in Python: `Client`, and `AsyncClient` for asyncio.

```python
with Client("http://localhost:8000") as client:
    for label in client.predict("Duties on imports of olive oil").results[0].labels:
        print(label.name, label.score)
```

It loads neither PyTorch nor the service.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import chain
from typing import Any, Self, TypeVar, Unpack

import httpx
from pydantic import BaseModel

from longtail.service.client import calls, given
from longtail.service.client.calls import (
    NEVER,
    Attempts,
    Call,
    ConnectionFailedError,
    PredictOptions,
    ProblemError,
    RequestOptions,
    Retry,
    Version,
)
from longtail.service.client.loop_thread import LoopThread
from longtail.service.client.stream import BatchAnswer, Line, Target, open_stream
from longtail.service.schemas.feedback import FeedbackReceipts
from longtail.service.schemas.labels import LabelDetail, LabelList
from longtail.service.schemas.models import ModelChange, ModelList
from longtail.service.schemas.predict import PredictResponse, TextResult

T = TypeVar("T", bound=BaseModel)
Result = TypeVar("Result")

TIMEOUT_S = 60.0
CHUNK_TEXTS = 32
DEFAULT_RETRY = Retry()


class AsyncClient:
    """Asks the service from asyncio; belongs to one event loop. Close it, or use it as a context.

    Every method raises `ProblemError` where the service answers with a problem,
    `ConnectionFailedError` where it can't be reached, and `NoAnswerError` where it is too late;
    after 429, 503 and broken connections it has come back before, as `Retry` says.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        retry: Retry = DEFAULT_RETRY,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            url: Of the service, with the path that a proxy may put before `/v1`.
            key: A key to ask with, or to change models with.
            timeout_s: Seconds to wait for an answer; loading a model may take longer.
            retry: What to do where the service is busy or away.

        Raises:
            ConfigError: The URL is none of a service.
        """
        self._target = _target(url, key, timeout_s, retry)
        self._http = httpx.AsyncClient(**_options_of(self._target))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up."""
        await self._http.aclose()

    async def predict(
        self, texts: str | Sequence[str], **options: Unpack[RequestOptions]
    ) -> PredictResponse:
        """Return the best labels of one text or several, as many as one request may have."""
        return await self._do(calls.predict(texts, options))

    def predict_many(
        self,
        texts: Iterable[str],
        *,
        chunk_texts: int = CHUNK_TEXTS,
        **options: Unpack[RequestOptions],
    ) -> AsyncIterator[TextResult]:
        """Yield the best labels of any number of texts, by one request after the other.

        Each request comes back by itself where the service is away for a while; `stream_batch` is
        faster, and does not.

        Args:
            texts: Read as the results are.
            chunk_texts: Texts in one request.
            options: As of `predict`.

        Raises:
            RequestError: It is one text, or not texts, or there is none in a request.
        """
        return self._results(given.text_chunks(texts, chunk_texts), options)

    async def _results(
        self, chunks: Iterable[list[str]], options: RequestOptions
    ) -> AsyncIterator[TextResult]:
        for chunk in chunks:
            for result in (await self.predict(chunk, **options)).results:
                yield result

    async def stream_batch(
        self, lines: Iterable[Line] | AsyncIterator[Line], **options: Unpack[PredictOptions]
    ) -> AsyncIterator[BatchAnswer]:
        """Yield the answer to each line, a result or an error, in order, while lines are sent.

        Neither side is ever held whole. Answers that are not read stop the sending.

        Args:
            lines: Texts, or mappings as `longtail.service.schemas.batch.BatchLine`; taken on
                another thread, where they are not a sequence.
            options: What is asked for where a line says nothing.

        Raises:
            IncompleteBatchError: It ended early; send again the lines without answers.
        """
        async for answers in self.stream_batch_together(lines, **options):
            for answer in answers:
                yield answer

    async def stream_batch_together(
        self, lines: Iterable[Line] | AsyncIterator[Line], **options: Unpack[PredictOptions]
    ) -> AsyncGenerator[list[BatchAnswer], None]:
        """Yield what `stream_batch` does, those answers in one list that came together.

        Raises:
            IncompleteBatchError: It ended early; send again the lines without answers.
        """
        given.check_lines(lines)
        stream = await open_stream(self._target, given.query_of(options))
        try:
            async for answers in stream.answers(lines):
                yield answers
        finally:
            await stream.close()

    async def metrics(self) -> str:
        """Return the metrics in Prometheus' text format."""
        return (await self._do(calls.metrics())).text

    async def models(self) -> ModelList:
        """Return all versions of the registry."""
        return await self._do(calls.models())

    async def labels(
        self, query: str = "", *, limit: int = 20, offset: int = 0, version: Version | None = None
    ) -> LabelList:
        """Return the labels that a query finds, and how many there are."""
        return await self._do(calls.labels(query, limit, offset, version))

    async def label(self, label_id: str, *, version: Version | None = None) -> LabelDetail:
        """Return all that is known of a label."""
        return await self._do(calls.label(label_id, version))

    async def give_feedback(self, entries: Sequence[Mapping[str, Any]]) -> FeedbackReceipts:
        """Say which labels are right; entries as `longtail.service.schemas.feedback.FeedbackEntry`.

        One without an `id` gets one, so that it is stored once, however often it is sent.
        """
        return await self._do(calls.give_feedback(entries))

    async def is_ready(self) -> bool:
        """Whether the service can predict now; asks once."""
        try:
            await self._do(calls.ready(), NEVER)
        except (ProblemError, ConnectionFailedError):
            return False
        return True

    async def check_access(self) -> None:
        """Do nothing if the key may change models, else raise `ProblemError`."""
        await self._do(calls.check_access())

    async def load(self, version: int) -> ModelChange:
        """Load a version beside the others."""
        return await self._do(calls.change_model(version, "load"))

    async def unload(self, version: int) -> ModelChange:
        """Unload a version."""
        return await self._do(calls.change_model(version, "unload"))

    async def activate(self, version: int) -> ModelChange:
        """Let `current` name this version, and answer with it."""
        return await self._do(calls.change_model(version, "activate"))

    async def rollback(self) -> ModelChange:
        """Go back to the version that was `current` before."""
        return await self._do(calls.rollback(), NEVER)

    async def set_canary(self, version: int, share: float) -> ModelChange:
        """Give a version a share, from 0 to 1, of the requests that name none."""
        return await self._do(calls.set_canary(version, share))

    async def end_canary(self) -> ModelChange:
        """Answer all requests that name no version with the default again."""
        return await self._do(calls.end_canary())

    async def do(self, call: Call[T]) -> T:
        """Return the answer to a call of `longtail.service.client.calls`."""
        return await self._do(call)

    async def _do(self, call: Call[T], retry: Retry | None = None) -> T:
        attempts = Attempts(retry or self._target.retry)
        while True:
            try:
                return call.read(await self._send(call))
            except (ProblemError, ConnectionFailedError) as error:
                await asyncio.sleep(attempts.wait_after(error))

    async def _send(self, call: Call[T]) -> httpx.Response:
        try:
            return await self._http.request(**_request_of(call, self._target))
        except httpx.TransportError as error:
            raise calls.http_error(self._target.url, error) from error


class Client:
    """`AsyncClient` for callers without asyncio, on an event loop on a thread of its own.

    Several threads may share one. Close it, or use it as a context; else the thread stays.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        retry: Retry = DEFAULT_RETRY,
    ) -> None:
        """Prepare; see `AsyncClient`."""
        self._client = AsyncClient(url, key=key, timeout_s=timeout_s, retry=retry)
        self._loop = LoopThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._loop.close(self._client.close)

    def predict(
        self, texts: str | Sequence[str], **options: Unpack[RequestOptions]
    ) -> PredictResponse:
        """Return the best labels of one text or several, as many as one request may have."""
        return self._loop.run(self._client.predict(texts, **options))

    def predict_many(
        self,
        texts: Iterable[str],
        *,
        chunk_texts: int = CHUNK_TEXTS,
        **options: Unpack[RequestOptions],
    ) -> Iterator[TextResult]:
        """Yield the best labels of any number of texts; see `AsyncClient.predict_many`."""
        chunks = given.text_chunks(texts, chunk_texts)
        return chain.from_iterable(self.predict(chunk, **options).results for chunk in chunks)

    def stream_batch(
        self, lines: Iterable[Line], **options: Unpack[PredictOptions]
    ) -> Iterator[BatchAnswer]:
        """Yield the answer to each line in order, while lines are sent; see `AsyncClient`.

        Raises:
            IncompleteBatchError: It ended early; send again the lines without answers.
        """
        stream = self._client.stream_batch_together(lines, **options)
        try:
            while (answers := self._loop.run(_next(stream))) is not None:
                yield from answers
        finally:
            self._loop.run(stream.aclose())

    def metrics(self) -> str:
        """Return the metrics in Prometheus' text format."""
        return self._loop.run(self._client.metrics())

    def models(self) -> ModelList:
        """Return all versions of the registry."""
        return self._loop.run(self._client.models())

    def labels(
        self, query: str = "", *, limit: int = 20, offset: int = 0, version: Version | None = None
    ) -> LabelList:
        """Return the labels that a query finds, and how many there are."""
        return self._loop.run(
            self._client.labels(query, limit=limit, offset=offset, version=version)
        )

    def label(self, label_id: str, *, version: Version | None = None) -> LabelDetail:
        """Return all that is known of a label."""
        return self._loop.run(self._client.label(label_id, version=version))

    def give_feedback(self, entries: Sequence[Mapping[str, Any]]) -> FeedbackReceipts:
        """Say which labels are right; see `AsyncClient.give_feedback`."""
        return self._loop.run(self._client.give_feedback(entries))

    def is_ready(self) -> bool:
        """Whether the service can predict now; asks once."""
        return self._loop.run(self._client.is_ready())

    def check_access(self) -> None:
        """Do nothing if the key may change models, else raise `ProblemError`."""
        self._loop.run(self._client.check_access())

    def load(self, version: int) -> ModelChange:
        """Load a version beside the others."""
        return self._loop.run(self._client.load(version))

    def unload(self, version: int) -> ModelChange:
        """Unload a version."""
        return self._loop.run(self._client.unload(version))

    def activate(self, version: int) -> ModelChange:
        """Let `current` name this version, and answer with it."""
        return self._loop.run(self._client.activate(version))

    def rollback(self) -> ModelChange:
        """Go back to the version that was `current` before."""
        return self._loop.run(self._client.rollback())

    def set_canary(self, version: int, share: float) -> ModelChange:
        """Give a version a share, from 0 to 1, of the requests that name none."""
        return self._loop.run(self._client.set_canary(version, share))

    def end_canary(self) -> ModelChange:
        """Answer all requests that name no version with the default again."""
        return self._loop.run(self._client.end_canary())


async def _next(answers: AsyncIterator[Result]) -> Result | None:
    return await anext(answers, None)


def _target(url: str, key: str | None, timeout_s: float, retry: Retry) -> Target:
    headers = {"User-Agent": "longtail-client"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    return Target(given.url_of(url), headers, timeout_s, retry)


def _options_of(target: Target) -> dict[str, Any]:
    return {"base_url": target.url, "headers": target.headers, "timeout": target.timeout_s}


def _request_of(call: Call[T], target: Target) -> dict[str, Any]:
    request: dict[str, Any] = {"method": call.method, "url": call.path}
    if call.content is not None:
        request["content"] = given.json_bytes(call.content)
        request["headers"] = {"Content-Type": "application/json"}
    if query := {name: value for name, value in call.query.items() if value is not None}:
        request["params"] = query
    if call.is_slow:
        request["timeout"] = httpx.Timeout(target.timeout_s, read=None)
    return request
