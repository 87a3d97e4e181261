"""Middleware that makes a span of each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longtail.service.telemetry.logs import add_log_context
from longtail.service.telemetry.tracing import Tracing
from longtail.service.web.paths import path_of
from longtail.service.web.request_state import QUIET_ROUTES, final_status, log_fields_of, route_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class TracingMiddleware:
    """Makes a span of every request that asks for work; health checks have none."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and say in its span how it ended."""
        if scope["type"] != "http" or path_of(scope) in QUIET_ROUTES:
            await self._app(scope, receive, send)
            return
        from opentelemetry.trace import use_span

        span = self._tracing.start_request(scope)
        add_log_context(trace_id=format(span.get_span_context().trace_id, "032x"))
        status = 500

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            # An exception's words could repeat a text.
            with use_span(span, record_exception=False, set_status_on_exception=False):
                await self._app(scope, receive, note_status)
        finally:
            _describe(span, scope, final_status(scope, status))
            span.end()


def _describe(span: Span, scope: Scope, status: int) -> None:
    from opentelemetry.trace import StatusCode

    method, route = scope["method"], route_of(scope)
    span.update_name(f"{method} {route}")
    span.set_attribute("http.request.method", method)
    span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)
    for name, value in log_fields_of(scope).items():
        plain = value if isinstance(value, bool | int | float | str) else str(value)
        span.set_attribute(f"longtail.{name}", plain)
    if status >= 500:
        span.set_status(StatusCode.ERROR)
