"""Refuses request bodies over a limit, before and while they are read."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.problems import HTTP_KINDS, problem_response


class BodyLimitMiddleware:
    """Answers 413 to a declared length over the limit; stops reading a stream that exceeds it."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on unless, and only as far as, its body is within the limit."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self._max_body_bytes:
            response = problem_response(request, HTTP_KINDS[413], self._detail)
            await response(scope, receive, send)
            return
        num_bytes = 0

        async def receive_within_limit() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._max_body_bytes:
                raise HTTPException(413, self._detail)
            return message

        await self._app(scope, receive_within_limit, send)

    @property
    def _detail(self) -> str:
        return (
            f"The body has more than {self._max_body_bytes} bytes; "
            "send fewer or shorter texts in one request"
        )
