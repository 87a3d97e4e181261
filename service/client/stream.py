"""A batch as clients see it: lines go out while answers come in, on one connection (HTTP/1.1).

HTTP libraries send a body to its end before they read the answer, so this speaks for itself.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlencode

import h11
import httpx

from longtail.service.client.calls import (
    Attempts,
    ClientError,
    ConnectionFailedError,
    IncompleteBatchError,
    NoAnswerError,
    ProblemError,
    Retry,
    raise_problem,
    read_as,
)
from longtail.service.client.given import line_of
from longtail.service.schemas.batch import BatchEnd, BatchError, BatchResult

Line: TypeAlias = str | Mapping[str, Any]
"""A text, or an object as `longtail.service.schemas.batch.BatchLine`."""
BatchAnswer: TypeAlias = BatchResult | BatchError

PATH = "/v1/batch"
_READ_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go.

    Attributes:
        url: Of the service.
        headers: To send along.
        timeout_s: Seconds to connect, and to wait for an answer that is due.
        retry: What to do where the service is busy or away.
        ssl_context: For https; None: the machine's own authorities.
    """

    url: httpx.URL
    headers: Mapping[str, str]
    timeout_s: float
    retry: Retry
    ssl_context: ssl.SSLContext | None = None


class BatchStream:
    """One batch: `open` it, iterate over its answers, and `close` it in any case."""

    def __init__(self, target: Target, query: Mapping[str, Any]) -> None:
        """Prepare to send.

        Args:
            target: Where.
            query: What is asked for where a line says nothing.
        """
        self._target = target
        self._query = query
        self._protocol = h11.Connection(h11.CLIENT)
        self._sender: asyncio.Task[None] | None = None
        self._num_owed = 0

    async def open(self) -> None:
        """Connect, and wait until the service says that it will take lines.

        Raises:
            ProblemError: It will not.
            ConnectionFailedError: It can't be reached.
        """
        try:
            async with asyncio.timeout(self._target.timeout_s):
                await self._connect()
                self._write(self._head())
                response = await self._event()
                while isinstance(response, h11.InformationalResponse):
                    response = await self._event()
                if not isinstance(response, h11.Response) or response.status_code != 200:
                    await self._raise_problem(response)
        except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
            raise ConnectionFailedError(
                f"{self._target.url} does not take a batch ({error!r}); is the service up, and "
                "does no proxy in between hold requests back?"
            ) from error

    async def answers(
        self, lines: Iterable[Line] | AsyncIterator[Line]
    ) -> AsyncIterator[list[BatchAnswer]]:
        """Send lines, and return their answers while they come.

        Args:
            lines: Taken one by one, as fast as the service reads them; on another thread, where
                they are not a sequence.

        Yields:
            Answers that came together, in order.

        Raises:
            IncompleteBatchError: The service gave up, or broke off.
            ConnectionFailedError: The connection broke.
            NoAnswerError: No answer came in time.
            Exception: Whatever taking a line raised.
        """
        self._sender = asyncio.create_task(self._send(lines))
        self._sender.add_done_callback(self._on_sent)
        rest = b""
        try:
            while isinstance(event := await self._due_event(), h11.Data):
                *whole, rest = (rest + bytes(event.data)).split(b"\n")
                found = [_answer_of(line) for line in whole]
                self._num_owed -= len(found)
                if found and isinstance(found[-1], BatchEnd):
                    yield [one for one in found if not isinstance(one, BatchEnd)]
                    if not found[-1].summary.complete:
                        raise IncompleteBatchError(found[-1].summary)
                    return
                yield [one for one in found if not isinstance(one, BatchEnd)]
        except (OSError, h11.RemoteProtocolError) as error:
            if (cause := self._error_of_lines()) is not None:
                raise cause from None
            raise ConnectionFailedError(f"the connection broke ({error!r})") from error
        raise IncompleteBatchError(None)

    async def close(self) -> None:
        """Hang up."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        if self._protocol.our_state is not h11.IDLE:
            self._writer.close()

    async def _connect(self) -> None:
        url = self._target.url
        is_secure = url.scheme == "https"
        self._reader, self._writer = await asyncio.open_connection(
            url.host,
            url.port or (443 if is_secure else 80),
            ssl=(self._target.ssl_context or True) if is_secure else None,
            limit=_READ_BYTES,
        )

    def _head(self) -> h11.Request:
        url = self._target.url
        headers = {
            "Host": url.netloc.decode(),
            "Content-Type": "application/x-ndjson",
            "Transfer-Encoding": "chunked",
            **self._target.headers,
        }
        query = f"?{urlencode(self._query, doseq=True)}" if self._query else ""
        path = url.raw_path.decode().rstrip("/")
        return h11.Request(
            method="POST", target=f"{path}{PATH}{query}", headers=list(headers.items())
        )

    def _write(self, event: h11.Event) -> None:
        self._writer.write(self._protocol.send(event) or b"")

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            self._protocol.receive_data(await self._reader.read(_READ_BYTES))
        return event

    async def _due_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event; nothing need come as long as all lines are answered.

        Raises:
            NoAnswerError: Nothing came in time.
        """
        while True:
            is_due = self._num_owed > 0
            try:
                async with asyncio.timeout(self._target.timeout_s):
                    return await self._event()
            except TimeoutError as error:
                if is_due:
                    raise NoAnswerError(
                        f"got no answer for {self._target.timeout_s:g} s; send again the lines "
                        "without answers"
                    ) from error

    async def _raise_problem(self, response: object) -> None:
        """Raise what a refusal says.

        Raises:
            ProblemError: In any case.
            RemoteProtocolError: It can't be read.
        """
        assert isinstance(response, h11.Response)
        content = b""
        while isinstance(event := await self._event(), h11.Data):
            content += bytes(event.data)
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers
        }
        raise_problem(response.status_code, headers, content)

    async def _send(self, lines: Iterable[Line] | AsyncIterator[Line]) -> None:
        number = 0
        async for line in _one_by_one(lines):
            data = line_of(line, number)
            number += 1
            self._num_owed += 1
            await self._put(h11.Data(data=data))
        await self._put(h11.EndOfMessage())

    async def _put(self, event: h11.Event) -> None:
        """Send an event as soon as the service takes it.

        Raises:
            ConnectionFailedError: The connection broke.
        """
        self._write(event)
        try:
            await self._writer.drain()
        except OSError as error:
            raise ConnectionFailedError(f"the connection broke ({error!r})") from error

    def _on_sent(self, sender: asyncio.Task[None]) -> None:
        if not sender.cancelled() and self._error_of_lines() is not None:
            self._writer.transport.abort()  # wakes who waits for answers

    def _error_of_lines(self) -> BaseException | None:
        """Return what taking a line raised, if that has ended the sending."""
        assert self._sender is not None
        error = self._sender.exception() if self._sender.done() else None
        return None if isinstance(error, ConnectionFailedError) else error


async def open_stream(target: Target, query: Mapping[str, Any]) -> BatchStream:
    """Return a batch that the service will take; come back where it is busy or away.

    Raises:
        ProblemError: It will not take it.
        ConnectionFailedError: It can't be reached.
    """
    attempts = Attempts(target.retry)
    while True:
        stream = BatchStream(target, query)
        try:
            await stream.open()
        except (ProblemError, ConnectionFailedError) as error:
            await stream.close()
            await asyncio.sleep(attempts.wait_after(error))
        else:
            return stream


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


def _answer_of(line: bytes) -> BatchAnswer | BatchEnd:
    """Return what a line of the answer says.

    Raises:
        ClientError: It is not what this release knows.
    """
    try:
        content = json.loads(line)
    except ValueError as error:
        raise ClientError(f"a line of the answer is not JSON ({error})") from error
    if "summary" in content:
        return read_as(BatchEnd, content)
    return read_as(BatchError, content) if "error" in content else read_as(BatchResult, content)
