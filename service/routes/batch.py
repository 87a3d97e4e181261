"""`POST /v1/batch`: a stream of texts in, a stream of labels out.

Lines are read only while there is room for their answers, and answers are written as fast as the
client reads them: the slower side sets the pace.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import fastapi
from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from longtail.models.errors import LongtailError, NotReadyError, RequestError
from longtail.service.engine.queries import Query
from longtail.service.errors import DeadlineError
from longtail.service.http.deps import (
    CLIENT_GONE_STATUS,
    Service,
    ServiceDep,
    add_log_fields,
    note_client_gone,
    require_lines,
)
from longtail.service.http.json_body import off_the_loop
from longtail.service.http.problem_handlers import HTTP_KINDS, accepts_gzip, inflater_for, responses
from longtail.service.schemas.base import Problem
from longtail.service.schemas.requests import BatchLine, BatchOptions
from longtail.service.wire.lines import (
    LineError,
    LineSplitter,
    Tally,
    end_line,
    error_line,
    parse_line,
    problem_of_error,
    result_line,
    too_long,
)
from longtail.service.wire.problems import INTERNAL, TYPE_PREFIX, Inflater, problem_of

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/x-ndjson"

_WINDOW_BYTES = 2**22
"""About the size of the lines and answers that one stream may hold."""
_LINE_BYTES = 2**14
"""Least size of a line in work: 256 of them fill the window."""
_LABEL_BYTES = 2**7
"""That a label in an answer is counted with."""
_EXPLAINED_BYTES = 2**12
"""That one with an explanation is."""
_STOPPING = "the service is stopping; send the lines that have no result again, to another instance"
_MAX_WASTED = 10_000
"""Lines that may be blank or wrong, besides as many as were answered with labels."""
_LINES_A_TURN = 10
"""Lines after which other requests get their turn, however little there was to wait for."""
_BYTES_A_TURN = 2**13
"""A line of more bytes than these counts as a turn."""
_LABELS_A_TURN = 100
"""An answer of more labels, which takes milliseconds to write, is written off the event loop."""
_CHUNK_BYTES = 2**16
"""Answers that are ready go out together up to this size."""


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """What bounds one batch.

    Attributes:
        defaults: What is asked for where a line says nothing.
        max_line_bytes: Longer lines are answered with an error.
        idle_timeout_s: Seconds that the client may neither send nor read.
        stop_timeout_s: Seconds that lines get to be answered when the service stops.
        is_gzip_in: Whether the lines come packed.
        is_gzip_out: Whether the answers shall be.
    """

    defaults: Mapping[str, Any]
    max_line_bytes: int
    idle_timeout_s: float
    stop_timeout_s: float
    is_gzip_in: bool = False
    is_gzip_out: bool = False


class _Window:
    """Room for lines in work; one task waits for it."""

    def __init__(self, num_bytes: int) -> None:
        self._num_free = self._num_all = num_bytes
        self._has_changed = asyncio.Event()

    async def take(self, num_bytes: int) -> None:
        """Wait until there is so much room, or all there is, and take it."""
        while self._num_free < min(num_bytes, self._num_all):
            self._has_changed.clear()
            await self._has_changed.wait()
        self._num_free -= num_bytes

    def give_back(self, num_bytes: int) -> None:
        self._num_free += num_bytes
        self._has_changed.set()


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line in work: its answer to come, and the room that it takes."""

    answer: asyncio.Task[bytes]
    num_bytes: int


class BatchResponse(Response):
    """Reads lines from the request while it writes the answers."""

    media_type = MEDIA_TYPE

    def __init__(self, service: Service, settings: BatchSettings) -> None:
        """Take the parts; the answer begins when it is called.

        Args:
            service: Answers the lines; when it stops, no more are read.
            settings: What bounds this batch.
        """
        headers = {"Vary": "Accept-Encoding"}
        if settings.is_gzip_out:
            headers["Content-Encoding"] = "gzip"
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._service = service
        self._is_given_up = False
        self._settings = settings
        self._tally = Tally()
        self._num_read = self._num_wasted = self._num_waiting = 0
        self._window = _Window(_WINDOW_BYTES)
        self._long_answers = asyncio.Lock()
        self._entries: deque[_Entry] = deque()
        self._has_entries = asyncio.Event()
        self._is_read = False
        self._error: Problem | None = None
        self._packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS) if settings.is_gzip_out else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer until all is answered, or the client is gone."""
        started = time.perf_counter()
        with self._service.streams.one_more():
            reader = asyncio.create_task(self._read(receive))
            writer = asyncio.create_task(self._write(send))
            stopper = asyncio.create_task(self._stop())
            try:
                done, _ = await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
                if writer not in done and reader.exception() is None:  # the client is gone
                    note_client_gone(scope)
                    self._service.telemetry.count_problem(HTTP_KINDS[CLIENT_GONE_STATUS].slug)
            finally:
                await self._end(reader, writer, stopper)
        tally = self._tally
        add_log_fields(
            scope,
            lines=tally.num_lines,
            errors=tally.num_errors,
            whole=writer.done() and not writer.cancelled() and self._error is None,
            lines_per_s=round(tally.num_lines / max(time.perf_counter() - started, 1e-9), 1),
        )

    async def _stop(self) -> None:
        """Read no more lines once the service stops; answer lines already read, while it can."""
        await self._service.stopping.wait()
        self._error = problem_of_error(NotReadyError(_STOPPING))
        self._is_read = True
        self._has_entries.set()
        await asyncio.sleep(self._settings.stop_timeout_s)
        self._is_given_up = True
        for entry in self._entries:
            entry.answer.cancel()

    async def _end(self, *tasks: asyncio.Task[None]) -> None:
        everything = [*tasks, *(entry.answer for entry in self._entries)]
        for task in everything:
            task.cancel()
        ends = await asyncio.gather(*everything, return_exceptions=True)
        self._entries.clear()
        for end in ends[: len(tasks)]:
            if isinstance(end, Exception):
                logger.error("a batch ended by an unexpected error", exc_info=end)

    async def _read(self, receive: Receive) -> None:
        """Begin to answer the lines that come; returns when the client is gone, not before."""
        splitter = LineSplitter(self._settings.max_line_bytes)
        try:
            async for piece in self._pieces(receive):
                for line in splitter.feed(piece):
                    await self._begin(line)
                await asyncio.sleep(0)  # a piece may hold no line at all
            for line in splitter.finish():
                await self._begin(line)
        except (RequestError, DeadlineError) as error:
            self._error = problem_of_error(error)
        except ConnectionError:
            return
        self._is_read = True
        self._has_entries.set()
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _pieces(self, receive: Receive) -> AsyncIterator[bytes]:
        inflater = Inflater() if self._settings.is_gzip_in else None
        more = True
        while more:
            try:
                async with asyncio.timeout(self._settings.idle_timeout_s):
                    message = await receive()
            except TimeoutError as error:
                raise DeadlineError(
                    f"the client sent nothing for {self._settings.idle_timeout_s:g} s, so that the "
                    "batch ends here; send the lines that have no answer again"
                ) from error
            if message["type"] == "http.disconnect":
                raise ConnectionError
            body, more = message.get("body", b""), message.get("more_body", False)
            for piece in [body] if inflater is None else inflater.feed(body):
                yield piece
        if inflater is not None:
            inflater.finish()

    async def _begin(self, line: bytes | None) -> None:
        """Begin to answer a line as soon as there is room for it; blank lines have no answer."""
        self._num_read += 1
        if self._num_read % _LINES_A_TURN == 0 or len(line or b"") > _BYTES_A_TURN:
            await asyncio.sleep(0)
        self._check_waste()
        if line is not None and not line.strip():
            self._num_wasted += 1
            return
        num_bytes = _LINE_BYTES + len(line or b"")
        parsed = await self._parsed(line)
        if isinstance(parsed, BatchLine):
            num_bytes += (_EXPLAINED_BYTES if parsed.explain else _LABEL_BYTES) * parsed.k
        await self._window.take(num_bytes)
        if self._is_read:  # the service stops
            return
        index = self._tally.num_lines
        self._tally.num_lines += 1
        answer = asyncio.create_task(self._answer(index, parsed))
        if isinstance(parsed, BatchLine):
            self._num_waiting += 1
            answer.add_done_callback(self._note_done)
        self._entries.append(_Entry(answer, num_bytes))
        self._has_entries.set()

    def _note_done(self, _: object) -> None:
        self._num_waiting -= 1

    def _check_waste(self) -> None:
        """End a batch of lines that cost work and give no labels."""
        # Lines that wait may get labels: how fast answers come is not up to the client.
        num_good = self._tally.num_results + self._num_waiting
        if self._num_wasted > _MAX_WASTED + num_good:
            first = self._tally.first_error or "they are blank"
            raise RequestError(
                f"the batch ends here, as {self._num_wasted} lines were blank or wrong and "
                f"{self._tally.num_results} were answered with labels; expected at most "
                f"{_MAX_WASTED} more of the former; correct the lines (the first that is wrong: "
                f"{first}), and send those that have no answer again"
            )

    async def _parsed(self, line: bytes | None) -> BatchLine | LineError:
        if line is None:
            return too_long(self._settings.max_line_bytes)
        try:
            parse = partial(parse_line, line, self._settings.defaults)
            return await off_the_loop(len(line), parse)
        except LineError as error:
            return error

    async def _answer(self, index: int, line: BatchLine | LineError) -> bytes:
        try:
            if isinstance(line, LineError):
                raise line
            query = Query((line.whole_text,), line)
            answer = await self._service.engine.predict_in_stream(query)
            (prediction,) = answer.predictions
            write = partial(
                result_line, index, line, answer.model.version, answer.scorer, prediction
            )
            if len(prediction.labels) <= _LABELS_A_TURN:
                result = write()
            else:
                async with self._long_answers:  # computed together, but written one at a time
                    result = await run_in_threadpool(write)
            self._tally.note_result(answer.model.version, truncated=prediction.truncated)
            self._service.telemetry.count_line("result")
            return result
        except asyncio.CancelledError:
            if not self._is_given_up:
                raise
            problem = problem_of_error(NotReadyError(_STOPPING))
            return self._error_line(index, line.id, problem)
        except LongtailError as error:
            problem = problem_of_error(error)
            if problem.status == INTERNAL.status:
                self._service.self_check.note_failure()
            self._num_wasted += problem.status < INTERNAL.status
            return self._error_line(index, line.id, problem)
        except Exception as error:
            self._service.self_check.note_failure()
            logger.exception("a line of a batch failed with %s", type(error).__name__)
            detail = "an unexpected error; its cause is in the log"
            return self._error_line(index, line.id, problem_of(INTERNAL, detail))

    def _error_line(self, index: int, known_by: str | int | None, problem: Problem) -> bytes:
        self._tally.note_error(index, problem.detail)
        self._service.telemetry.count_line(problem.type.removeprefix(TYPE_PREFIX))
        return error_line(index, known_by, problem)

    async def _write(self, send: Send) -> None:
        """Write the answers in order, and the summary; give up where the client does not read."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for chunk in self._chunks():
                await self._send(send, chunk, more=True)
            end = self._packed(end_line(self._tally.summary(self._error)), is_last=True)
            await self._send(send, end, more=False)
        except TimeoutError:
            logger.warning("a batch ends: its client did not read for too long")

    async def _send(self, send: Send, chunk: bytes, *, more: bool) -> None:
        async with asyncio.timeout(self._settings.idle_timeout_s):
            await send({"type": "http.response.body", "body": chunk, "more_body": more})

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            self._has_entries.clear()
            if not self._entries:
                if self._is_read:
                    return
                await self._has_entries.wait()
                continue
            lines = [await self._entries[0].answer]
            taken = self._entries.popleft().num_bytes
            num_bytes = len(lines[0])
            while self._entries and self._entries[0].answer.done() and num_bytes < _CHUNK_BYTES:
                entry = self._entries.popleft()
                lines.append(entry.answer.result())
                num_bytes += len(lines[-1])
                taken += entry.num_bytes
            yield self._packed(b"".join(lines))
            self._window.give_back(taken)

    def _packed(self, chunk: bytes, *, is_last: bool = False) -> bytes:
        if self._packer is None:
            return chunk
        mode = zlib.Z_FINISH if is_last else zlib.Z_SYNC_FLUSH
        return self._packer.compress(chunk) + self._packer.flush(mode)


router = APIRouter()

_LINES = {"type": "string", "description": "One JSON object per line"}
BATCH_BODY = {
    "required": True,
    "description": "One `BatchLine` per line",
    "content": {MEDIA_TYPE: {"schema": _LINES}},
}
BATCH_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One `BatchResult` or `BatchError` for each line, and a `BatchEnd`",
        "content": {MEDIA_TYPE: {"schema": _LINES}},
    }
}


@router.post(
    "/v1/batch",
    tags=["labels"],
    summary="Labels of a stream of texts",
    dependencies=[Depends(require_lines)],
    response_class=Response,
    responses=responses(415, 422, 429, 503) | BATCH_RESPONSES,
    openapi_extra={"requestBody": BATCH_BODY},
)
async def batch(
    request: Request, service: ServiceDep, options: Annotated[BatchOptions, fastapi.Query()]
) -> BatchResponse:
    """Return the best labels of each line's text, in order, while lines are still being sent.

    Lines are JSON objects (`BatchLine`); each one that is not blank is answered by one line, a
    `BatchResult` or a `BatchError`, with its `id`. The last line is a `BatchEnd`; where it is
    missing, the answer is incomplete. Query parameters are the defaults for every line. Body and
    answer may be gzip (`Content-Encoding`, `Accept-Encoding`). Read answers while you send: the
    service stops reading from a client that does not read its answers.
    """
    is_packed = inflater_for(request.headers.get("content-encoding", "identity")) is not None
    service.streams.check()
    service.engine.check_room()
    return BatchResponse(
        service,
        BatchSettings(
            defaults=options.model_dump(exclude_unset=True),
            max_line_bytes=service.settings.max_body_bytes,
            idle_timeout_s=service.settings.stream_idle_timeout_s,
            stop_timeout_s=service.settings.shutdown_timeout_s / 4,
            is_gzip_in=is_packed,
            is_gzip_out=accepts_gzip(request.headers.get("accept-encoding", "")),
        ),
    )
