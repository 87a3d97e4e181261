"""A span of each request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from longtail.service.telemetry.logs import add_log_context
from longtail.service.telemetry.tracing import Tracing
from longtail.service.web.scopes import HEALTH_PATHS, log_fields_of, path_of, route_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span


def traced(app: ASGIApp, tracing: Tracing, status_of: Callable[[], int]) -> ASGIApp:
    """Return an application that makes a span of a request for work; health checks have none.

    Args:
        app: Answers the request.
        tracing: Makes the span.
        status_of: Returns how the request ended, once it has.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if path_of(scope) in HEALTH_PATHS:
            await app(scope, receive, send)
            return
        from opentelemetry.trace import use_span

        span = tracing.start_request(scope)
        add_log_context(trace_id=format(span.get_span_context().trace_id, "032x"))
        try:
            # An exception's words could repeat a text.
            with use_span(span, record_exception=False, set_status_on_exception=False):
                await app(scope, receive, send)
        finally:
            _describe(span, scope, status_of())
            span.end()

    return answer


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
