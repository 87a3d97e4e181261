"""HEAD wherever there is GET (RFC 9110, 9.3.2): the same status and headers, and no body."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadMiddleware:
    """Lets routes answer HEAD as they answer GET; FastAPI's would say 405."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, HEAD as GET, and leave the body out of the answer to HEAD."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        as_get = {**scope, "method": "GET"}  # a copy: the server and the log must see HEAD
        try:
            await self._app(as_get, receive, send_without_body)
        finally:
            if "route" in as_get:
                scope["route"] = as_get["route"]  # what the log and the metrics name
