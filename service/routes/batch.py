"""`POST /v1/batch`: a body of lines in, a line with the labels of each out, as they are found."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import fastapi
from fastapi import APIRouter, Depends, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from longtail.models.errors import LongtailError, NotReadyError, RequestError
from longtail.service.engine.engine import EngineAnswer
from longtail.service.engine.queries import Query
from longtail.service.http.deps import (
    CLIENT_GONE_STATUS,
    Service,
    ServiceDep,
    add_log_fields,
    note_client_gone,
    require_lines,
    while_connected,
)
from longtail.service.http.json_body import off_the_loop, written_off_the_loop
from longtail.service.http.problem_handlers import HTTP_KINDS, responses
from longtail.service.schemas.base import Problem
from longtail.service.schemas.requests import BatchLine, BatchOptions
from longtail.service.wire.lines import (
    LineError,
    Tally,
    end_line,
    error_line,
    parse_line,
    problem_of_error,
    result_line,
)
from longtail.service.wire.problems import INTERNAL, TYPE_PREFIX, problem_of

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/x-ndjson"
MAX_LINES = 10_000
"""Most lines of a body, blank ones among them: each costs work, however short it is."""
_HELD_BYTES = 2**22
"""About the size of the answers of a batch that are computed before an earlier one is written."""
_LINE_BYTES = 2**14
"""Least size that an answer is counted with: at most 256 lines are in work."""
_LABEL_BYTES = 2**7
"""Size that a label in an answer is counted with."""
_EXPLAINED_BYTES = 2**12
"""The same of a label with an explanation."""
_CHUNK_BYTES = 2**16
"""Answers that are ready are sent together up to this size."""


class BatchResponse(Response):
    """Answers lines in order while further ones are computed."""

    media_type = MEDIA_TYPE

    def __init__(self, service: Service, content: bytes, defaults: Mapping[str, Any]) -> None:
        """Take the lines; they are answered when the response is called.

        Args:
            service: Answers the lines; when it stops, it begins no more of them.
            content: Lines.
            defaults: What is asked for where a line says nothing.
        """
        super().__init__()
        del self.headers["content-length"]
        self._service = service
        self._lines = [line for line in content.split(b"\n") if line.strip()]
        self._defaults = defaults
        self._tally = Tally()
        self._work: deque[tuple[BatchLine | LineError, asyncio.Task[EngineAnswer] | None]] = deque()
        self._error: Problem | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer until all is answered, or the client is gone."""
        started = time.perf_counter()
        is_whole = False
        with self._service.batches.one_more():
            try:
                await while_connected(Request(scope, receive), self._write(send))
                is_whole = self._error is None
            except HTTPException:  # the client is gone
                note_client_gone(scope)
                self._service.telemetry.count_problem(HTTP_KINDS[CLIENT_GONE_STATUS].slug)
            finally:
                tasks = [task for _, task in self._work if task is not None]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        add_log_fields(
            scope,
            lines=self._tally.num_lines,
            errors=self._tally.num_errors,
            whole=is_whole,
            lines_per_s=round(self._tally.num_lines / (time.perf_counter() - started), 1),
        )

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        held = 0
        for content in self._lines:
            await asyncio.sleep(0)  # other requests get their turn, also where lines are wrong
            line = await self._parsed(content)
            size = _size_of(line)
            while self._work and held + size > _HELD_BYTES:
                held -= await self._send_ready(send)
            if self._service.stopping.is_set():
                why = "the service is stopping; send the lines that have no answer again"
                self._error = problem_of_error(NotReadyError(why))
                break
            self._work.append((line, self._begun(line)))
            held += size
        while self._work:
            await self._send_ready(send)
        end = end_line(self._tally.summary(self._error))
        await send({"type": "http.response.body", "body": end, "more_body": False})

    async def _parsed(self, content: bytes) -> BatchLine | LineError:
        try:
            parse = partial(parse_line, content, self._defaults)
            return await off_the_loop(len(content), parse)
        except LineError as error:
            return error

    def _begun(self, line: BatchLine | LineError) -> asyncio.Task[EngineAnswer] | None:
        if isinstance(line, LineError):
            return None
        query = Query((line.whole_text,), line)
        return asyncio.create_task(self._service.engine.predict_in_batch(query))

    async def _send_ready(self, send: Send) -> int:
        """Send the next answer, and those behind it that are ready; return what they count."""
        answers: list[bytes] = []
        num_bytes = counted = 0
        while self._work and num_bytes < _CHUNK_BYTES:
            line, task = self._work[0]
            if answers and task is not None and not task.done():
                break
            answers.append(await self._answer(line, task))
            self._work.popleft()
            num_bytes += len(answers[-1])
            counted += _size_of(line)
        await send({"type": "http.response.body", "body": b"".join(answers), "more_body": True})
        return counted

    async def _answer(
        self, line: BatchLine | LineError, task: asyncio.Task[EngineAnswer] | None
    ) -> bytes:
        index = self._tally.num_lines
        self._tally.num_lines += 1
        try:
            if isinstance(line, LineError):
                raise line
            assert task is not None
            answer = await task
            (prediction,) = answer.predictions
            version = answer.model.version
            write = partial(result_line, index, line, version, answer.scorer, prediction)
            result = await written_off_the_loop([prediction], write)
        except LongtailError as error:
            problem = problem_of_error(error)
            if problem.status == INTERNAL.status:
                self._service.self_check.note_failure()
        except Exception as error:
            self._service.self_check.note_failure()
            logger.exception("a line of a batch failed with %s", type(error).__name__)
            problem = problem_of(INTERNAL, "an unexpected error; its cause is in the log")
        else:
            self._tally.note_result(version, truncated=prediction.truncated)
            self._service.telemetry.count_line("result")
            return result
        self._tally.note_error(index, problem.detail)
        self._service.telemetry.count_line(problem.type.removeprefix(TYPE_PREFIX))
        return error_line(index, line.id, problem)


def _size_of(line: BatchLine | LineError) -> int:
    """Return about the size of the answer to a line."""
    if isinstance(line, LineError):
        return _LINE_BYTES
    return _LINE_BYTES + (_EXPLAINED_BYTES if line.explain else _LABEL_BYTES) * line.k


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
    summary="Labels of many texts",
    dependencies=[Depends(require_lines)],
    response_class=Response,
    responses=responses(400, 413, 415, 422, 429, 503) | BATCH_RESPONSES,
    openapi_extra={"requestBody": BATCH_BODY},
)
async def batch(
    request: Request, service: ServiceDep, options: Annotated[BatchOptions, fastapi.Query()]
) -> BatchResponse:
    """Return the best labels of each line's text, in order, as they are found.

    Lines are JSON objects (`BatchLine`), at most 10,000, in a body of the usual size; each one that
    is not blank is answered by one line, a `BatchResult` or a `BatchError`, with its `id`. The last
    line is a `BatchEnd`; where it is missing, the answer is incomplete. Query parameters are the
    defaults for every line.
    """
    service.batches.check()
    service.engine.check_room()
    content = await request.body()
    num_lines = content.count(b"\n")
    if num_lines > MAX_LINES:
        raise RequestError(
            f"the body has {num_lines} lines; expected at most {MAX_LINES}: send them in several "
            "requests"
        )
    return BatchResponse(service, content, options.model_dump(exclude_unset=True))
