"""Middleware that measures and logs each request."""

from __future__ import annotations

import logging
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longtail.service.telemetry.logs import (
    REQUEST_ID_HEADER,
    request_id_of,
    start_log_context,
    structured,
)
from longtail.service.telemetry.metrics import Telemetry
from longtail.service.web.request_state import (
    _REQUEST_ID,
    QUIET_ROUTES,
    final_status,
    log_fields_of,
    route_of,
)

logger = logging.getLogger("longtail.service.requests")


class TelemetryMiddleware:
    """Times every request, counts it and logs one line about it."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and note how it ends; one that raises counts as status 500."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        started = time.perf_counter()
        request_id = request_id_of(Headers(scope=scope).get(REQUEST_ID_HEADER))
        scope.setdefault("state", {})[_REQUEST_ID] = request_id
        start_log_context(request_id=request_id)

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        finally:
            self._note(scope, status, time.perf_counter() - started)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route, status = route_of(scope), final_status(scope, status)
        self._telemetry.observe_request(scope["method"], route, status, seconds)
        level = logging.DEBUG if route in QUIET_ROUTES else logging.INFO
        if not logger.isEnabledFor(level):
            return
        fields: dict[str, object] = {"method": scope["method"], "route": route, "status": status}
        fields |= {"ms": round(seconds * 1000, 1)} | log_fields_of(scope)
        logger.log(
            level,
            "request %s",
            " ".join(f"{name}={value}" for name, value in fields.items()),
            extra=structured("request", fields),
        )
