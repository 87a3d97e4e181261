"""Answers a request that failed by a fault of the service, and keeps its connection.

Starlette raises such an error again after its own answer, so that the server logs it once more and
closes the connection, which a client then finds closed at its next request.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longtail.service.web.problem_handlers import unexpected_problem


class UnexpectedErrorMiddleware:
    """Turns errors that have no status of their own into a 500, and logs them with their cause."""

    def __init__(self, app: ASGIApp) -> None:
        """Stand in front of an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer 500 where an error comes back before the answer begins.

        Raises:
            Exception: The answer has begun; the server can only break it off.
        """
        has_begun = False

        async def note_begin(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, note_begin)
        except Exception as error:
            if has_begun or scope["type"] != "http":
                raise
            await unexpected_problem(Request(scope), error)(scope, receive, send)
