"""Refuses bodies over a limit, before and while they are read, and unpacks gzip ones.

Queries of too many parameters are refused, too.

A client that hangs up before its body was sent whole is noticed here, for all routes alike.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longtail.service.web.encodings import inflater_for
from longtail.service.web.paths import STREAM_PATHS, path_of
from longtail.service.web.problem_handlers import HTTP_KINDS, BodyError, problem_response
from longtail.service.wire.decompression import BadGzipError, Inflater

MAX_PARAMETERS = 4000
"""Of a query: what fits into the longest takes a tenth of a second to parse."""


class BodyLimitMiddleware:
    """Answers 413 to a declared length over the limit; stops reading a stream that exceeds it.

    The limit holds for what is sent and for what it unpacks to. A body that does not come whole in
    time is answered with 408, and its connection is closed.
    """

    def __init__(self, app: ASGIApp, max_body_bytes: int, read_timeout_s: float) -> None:
        """Stand in front of an application.

        Args:
            app: The application.
            max_body_bytes: Most bytes of a body.
            read_timeout_s: Seconds in which it must have come.
        """
        self._app = app
        self._max_body_bytes = max_body_bytes
        self._read_timeout_s = read_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on unless, and only as far as, its body is within the limit."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None and path_of(scope) not in STREAM_PATHS:
            try:
                inflater = inflater_for(Headers(scope=scope))
            except BodyError as error:
                refusal = problem_response(
                    Request(scope), HTTP_KINDS[415], error.detail, headers=error.headers
                )
            else:
                limits = self._max_body_bytes, self._detail, self._read_timeout_s
                receive = _Body(receive, inflater, *limits).receive
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        num_parameters = scope.get("query_string", b"").count(b"&") + 1
        if num_parameters > MAX_PARAMETERS:
            detail = f"the query has {num_parameters} parameters; expected at most {MAX_PARAMETERS}"
            return problem_response(Request(scope), HTTP_KINDS[431], detail)
        declared = Headers(scope=scope).get("content-length", "")
        is_too_long = declared.isdecimal() and int(declared) > self._max_body_bytes
        if is_too_long and path_of(scope) not in STREAM_PATHS:
            return problem_response(Request(scope), HTTP_KINDS[413], self._detail)
        return None

    @property
    def _detail(self) -> str:
        return (
            f"The body has more than {self._max_body_bytes} bytes; "
            "send fewer or shorter texts in one request"
        )


class _Body:
    """The body of one request, unpacked and counted while it is received."""

    def __init__(
        self,
        receive: Receive,
        inflater: Inflater | None,
        max_bytes: int,
        detail: str,
        timeout_s: float,
    ) -> None:
        self._receive = receive
        self._inflater = inflater
        self._max_bytes = max_bytes
        self._detail = detail
        self._timeout_s = timeout_s
        self._deadline = asyncio.get_running_loop().time() + timeout_s
        self._num_bytes = 0
        self._is_whole = False

    async def receive(self) -> Message:
        """Return the next message."""
        message = await (self._receive() if self._is_whole else self._receive_in_time())
        body = message.get("body", b"")
        if message["type"] != "http.request":
            if not self._is_whole:
                raise BodyError(499, "The client hung up before its body was sent whole")
            return message
        self._is_whole = not message.get("more_body", False)
        if self._inflater is None:
            self._count(body)
            return message
        try:
            pieces = []
            for piece in self._inflater.feed(body):
                self._count(piece)
                pieces.append(piece)
            if self._is_whole:
                self._inflater.finish()
        except BadGzipError as error:
            raise BodyError(400, str(error)) from error
        return {**message, "body": b"".join(pieces)}

    async def _receive_in_time(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._receive()
        except TimeoutError as error:
            detail = (
                f"The body did not come whole within {self._timeout_s:g} s; send it faster, or "
                "fewer texts in one request"
            )
            raise BodyError(408, detail, {"Connection": "close"}) from error

    def _count(self, piece: bytes) -> None:
        self._num_bytes += len(piece)
        if self._num_bytes > self._max_bytes:
            raise BodyError(413, self._detail)
