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
import secrets
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from functools import update_wrapper
from itertools import chain
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, Unpack

import httpx

from longtail.models.interface.given_texts import texts_of
from longtail.service.client.calls import (
    NEVER,
    ConnectionFailedError,
    LoopThread,
    PredictOptions,
    ProblemError,
    RequestOptions,
    Retry,
    Version,
    http_error,
    reader_of,
)
from longtail.service.client.stream import (
    Answered,
    BatchAnswer,
    Line,
    answers_to,
    check_lines,
    json_bytes,
    query_of,
    read_batch,
    text_chunks,
    url_of,
)
from longtail.service.schemas.feedback import FeedbackReceipts
from longtail.service.schemas.labels import LabelDetail, LabelList
from longtail.service.schemas.models import Health, ModelChange, ModelList
from longtail.service.schemas.predict import PredictResponse, TextResult

T = TypeVar("T")
Result = TypeVar("Result")
Given = ParamSpec("Given")

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
        headers = {"User-Agent": "longtail-client"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._url, self._retry = url_of(url), retry
        self._http = httpx.AsyncClient(base_url=self._url, headers=headers, timeout=timeout_s)

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
        asked: dict[str, Any] = dict(options)
        if isinstance(texts, str):
            asked["text"] = texts_of([texts])[0]
        else:
            asked["texts"] = list(texts_of(texts))
        return await self._post("/v1/predict", asked, reader_of(PredictResponse))

    def predict_many(
        self,
        texts: Iterable[str],
        *,
        chunk_texts: int = CHUNK_TEXTS,
        **options: Unpack[RequestOptions],
    ) -> AsyncIterator[TextResult]:
        """Yield the best labels of any number of texts, by one request after the other.

        `stream_batch` is faster.

        Args:
            texts: Read as the results are.
            chunk_texts: Texts in one request.
            options: As of `predict`.

        Raises:
            RequestError: It is one text, or not texts, or there is none in a request.
        """
        return self._results(text_chunks(texts, chunk_texts), options)

    async def _results(
        self, chunks: Iterable[list[str]], options: RequestOptions
    ) -> AsyncIterator[TextResult]:
        for chunk in chunks:
            for result in (await self.predict(chunk, **options)).results:
                yield result

    async def stream_batch(
        self, lines: Iterable[Line] | AsyncIterator[Line], **options: Unpack[PredictOptions]
    ) -> AsyncIterator[BatchAnswer]:
        """Yield the answer to each line, a result or an error, in order, while lines are taken.

        A few hundred lines are held at a time. Answers that are not read stop the sending.

        Args:
            lines: Texts, or mappings as `longtail.service.schemas.predict.BatchLine`; taken on
                another thread, where they are not a sequence.
            options: What is asked for where a line says nothing.

        Raises:
            IncompleteBatchError: It ended early; send again the lines without answers.
        """
        async with aclosing(self.stream_batch_together(lines, **options)) as found:
            async for answers in found:
                for answer in answers:
                    yield answer

    async def stream_batch_together(
        self, lines: Iterable[Line] | AsyncIterator[Line], **options: Unpack[PredictOptions]
    ) -> AsyncGenerator[list[BatchAnswer], None]:
        """Yield what `stream_batch` does, those answers in one list that came together.

        Raises:
            IncompleteBatchError: It ended early; send again the lines without answers.
        """
        check_lines(lines)
        query = query_of(options)

        async def ask(content: bytes) -> Answered:
            kind = {"Content-Type": "application/x-ndjson"}
            return await self._ask(
                "POST", "/v1/batch", read_batch, content=content, headers=kind, params=query
            )

        async with aclosing(answers_to(lines, ask)) as found:
            async for answers in found:
                yield answers

    async def models(self) -> ModelList:
        """Return all versions of the registry."""
        return await self._ask("GET", "/v1/models", reader_of(ModelList))

    async def labels(
        self, query: str = "", *, limit: int = 20, offset: int = 0, version: Version | None = None
    ) -> LabelList:
        """Return the labels that a query finds, and how many there are."""
        asked = {"query": query, "limit": limit, "offset": offset, "version": version}
        return await self._find(asked, reader_of(LabelList))

    async def label(self, label_id: str, *, version: Version | None = None) -> LabelDetail:
        """Return all that is known of a label."""
        # As a parameter, because proxies decode and merge the slashes of an id in the path.
        return await self._find({"id": label_id, "version": version}, reader_of(LabelDetail))

    async def give_feedback(self, entries: Sequence[Mapping[str, Any]]) -> FeedbackReceipts:
        """Say which labels are right; entries as `longtail.service.schemas.feedback.FeedbackEntry`.

        One without an `id` gets one, so that it is stored once, however often it is sent.
        """
        named = [{"id": f"client-{secrets.token_hex(16)}", **entry} for entry in entries]
        return await self._post("/v1/feedback", {"entries": named}, reader_of(FeedbackReceipts))

    async def is_ready(self) -> bool:
        """Whether the service can predict now; asks once."""
        try:
            await self._ask("GET", "/readyz", reader_of(Health), NEVER)
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
        """Go back to the version that was `current` before."""
        return await self._change("POST", "rollback", retry=NEVER)

    async def set_canary(self, version: int, share: float) -> ModelChange:
        """Give a version a share, from 0 to 1, of the requests that name none."""
        content = {"version": version, "share": share}
        return await self._change("PUT", "canary", content)

    async def end_canary(self) -> ModelChange:
        """Answer all requests that name no version with the default again."""
        return await self._change("DELETE", "canary")

    async def _find(self, query: Mapping[str, object], read: Callable[[httpx.Response], T]) -> T:
        return await self._ask("GET", "/v1/labels", read, params=query_of(query))

    async def _post(
        self, path: str, content: Mapping[str, Any], read: Callable[[httpx.Response], T]
    ) -> T:
        return await self._ask("POST", path, read, **_json(content))

    async def _change(
        self,
        method: Literal["POST", "PUT", "DELETE"],
        path: str,
        content: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
    ) -> ModelChange:
        """Ask for a change of the models, which takes as long as it takes to load one."""
        timeout = httpx.Timeout(self._http.timeout.connect, read=None)
        options = {"timeout": timeout, **({} if content is None else _json(content))}
        return await self._ask(
            method, f"/v1/admin/{path}", reader_of(ModelChange), retry, **options
        )

    async def _ask(
        self,
        method: str,
        path: str,
        read: Callable[[httpx.Response], T],
        retry: Retry | None = None,
        **options: Any,
    ) -> T:
        """Return what an answer says; asks again as often as `retry` says."""
        attempt, waited_s = 1, 0.0
        while True:
            try:
                return read(await self._send(method, path, options))
            except (ProblemError, ConnectionFailedError) as error:
                wait_s = (retry or self._retry).wait_s(attempt, waited_s, error)
                if wait_s is None:
                    raise
            await asyncio.sleep(wait_s)
            attempt, waited_s = attempt + 1, waited_s + wait_s

    async def _send(self, method: str, path: str, options: Mapping[str, Any]) -> httpx.Response:
        try:
            return await self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise http_error(self._url, error) from error


def _waiting(
    ask: Callable[Concatenate[AsyncClient, Given], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Client, Given], Result]:
    """Return a method of `Client` that waits for one of `AsyncClient`."""

    def wait(client: Client, /, *args: Given.args, **options: Given.kwargs) -> Result:
        return client._loop.run(ask(client._client, *args, **options))

    return update_wrapper(wait, ask)


class Client:
    """`AsyncClient` for callers without asyncio, on an event loop on a thread of its own.

    It has the methods of `AsyncClient`, each of which waits for its answer. Several threads may
    share one. Close it, or use it as a context; else the thread stays.
    """

    predict = _waiting(AsyncClient.predict)
    give_feedback = _waiting(AsyncClient.give_feedback)
    labels = _waiting(AsyncClient.labels)
    label = _waiting(AsyncClient.label)
    models = _waiting(AsyncClient.models)
    is_ready = _waiting(AsyncClient.is_ready)
    load = _waiting(AsyncClient.load)
    unload = _waiting(AsyncClient.unload)
    activate = _waiting(AsyncClient.activate)
    rollback = _waiting(AsyncClient.rollback)
    set_canary = _waiting(AsyncClient.set_canary)
    end_canary = _waiting(AsyncClient.end_canary)

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

    def predict_many(
        self,
        texts: Iterable[str],
        *,
        chunk_texts: int = CHUNK_TEXTS,
        **options: Unpack[RequestOptions],
    ) -> Iterator[TextResult]:
        """Yield the best labels of any number of texts; see `AsyncClient.predict_many`."""
        chunks = text_chunks(texts, chunk_texts)
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


async def _next(answers: AsyncIterator[Result]) -> Result | None:
    return await anext(answers, None)


def _json(content: Mapping[str, Any]) -> dict[str, Any]:
    kind = {"Content-Type": "application/json"}
    return {"content": json_bytes(content), "headers": kind}
