"""All that happens around every request, in one pass: the only middleware, but for that of traces.

Order: the prefix of a proxy, the room for work (429), log line and metrics, cross-origin pages
(CORS), `Host` and `Upgrade`, the key, the limits of the body, the route, and the answer to an error
that the route raises.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial

from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longtail.service.engine.admission import Reservation
from longtail.service.engine.traffic import set_client
from longtail.service.errors import QueueFullError
from longtail.service.http.deps import (
    HEALTH_PATHS,
    Service,
    final_status,
    log_fields_of,
    note_request_id,
    path_of,
    route_of,
)
from longtail.service.http.limits import BodyLimits, BodyReader, LoadShedding
from longtail.service.http.problem_handlers import answer_error
from longtail.service.http.security import (
    RAW_SECURITY_HEADERS,
    below_root,
    client_of,
    closing,
    head_refusal,
    key_refusal,
)
from longtail.service.telemetry.logs import (
    REQUEST_ID_HEADER,
    request_id_of,
    start_log_context,
    structured,
    trace_fields,
)

logger = logging.getLogger("longtail.service.requests")

_ID = REQUEST_ID_HEADER.lower().encode()
_FAILURES = frozenset({500, 504})
"""Statuses after which the service checks itself."""


class Front:
    """Stands between the server and the routes."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        service: Service,
        work_routes: Sequence[BaseRoute],
        direct_routes: Sequence[BaseRoute],
    ) -> None:
        """Stand in front of an application.

        Args:
            app: The application.
            service: Whose settings, keys and metrics count.
            work_routes: Routes whose POST requests are refused where there is no room for work.
            direct_routes: POST routes without parameters in their paths, whose endpoints take the
                request alone and return the response. They are called without the application's
                router, which costs as much as all else that such a request needs.
        """
        self._app = app
        self._service = service
        settings = service.settings
        self._root_path = settings.root_path
        self._shedding = LoadShedding(service, work_routes)
        self._limits = BodyLimits(settings.max_body_bytes, settings.read_timeout_s)
        self._direct = {x.path: x for x in direct_routes if isinstance(x, APIRoute)}
        self._with_cross_origin = partial(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "Content-Encoding", REQUEST_ID_HEADER],
            expose_headers=["Retry-After", REQUEST_ID_HEADER],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; one that raises after its answer has begun counts as status 500."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        redirect = below_root(scope, self._root_path) if self._root_path else None
        exchange = _Exchange(scope, receive, send)
        if redirect is not None:
            await redirect(scope, receive, exchange.send)
            return
        set_client(client_of(scope, self._service.keys.api))
        try:
            try:
                exchange.reservation = self._shedding.reserve(
                    scope, exchange.path, exchange.headers
                )
            except QueueFullError as error:
                await self._shedding.refuse(scope, exchange.path, exchange.send, error)
            else:
                await self._observe(exchange)
        except Exception:
            self._service.self_check.note_failure()
            raise
        finally:
            if exchange.reservation is not None:
                exchange.reservation.release()

    async def _observe(self, exchange: _Exchange) -> None:
        """Answer a request that there is room for, and note how that ends."""
        service, scope = self._service, exchange.scope
        started = time.perf_counter()
        traced = {} if service.tracing is None else trace_fields()
        start_log_context(request_id=exchange.request_id, **traced)
        answer: ASGIApp = partial(self._answer, exchange)
        if service.settings.cors_origins:
            answer = self._with_cross_origin(answer)
        try:
            await answer(scope, exchange.receive, exchange.send)
            if exchange.status in _FAILURES:
                service.self_check.note_failure()
        finally:
            seconds = time.perf_counter() - started
            route, status = route_of(scope), final_status(scope, exchange.status)
            service.telemetry.observe_request(scope["method"], route, status, seconds)
            _log(scope, route, status, seconds)

    async def _answer(
        self, exchange: _Exchange, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer by a refusal, by a direct route, or by the application."""
        service, path = self._service, exchange.path
        try:
            response = head_refusal(scope, service) or key_refusal(scope, path, service.keys)
            if response is None:
                exchange.body_reader = self._limits.reader_for(scope, exchange.headers)
                if scope["method"] == "POST" and (route := self._direct.get(path)):
                    scope["route"] = route
                    response = await route.endpoint(Request(scope, receive))
            await (response or self._app)(scope, receive, send)
        except Exception as error:
            if exchange.has_begun:
                raise
            response = await answer_error(Request(scope), error)
            await response(scope, receive, send)


class _Exchange:
    """One request and what has been sent of its answer."""

    __slots__ = (
        "_receive", "_send", "body_reader", "has_begun", "headers", "path", "request_id",
        "reservation", "scope", "status",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send
        self.headers: Mapping[bytes, bytes] = dict(reversed(scope["headers"]))  # the first counts
        self.request_id = request_id_of(self.headers.get(_ID, b"").decode("latin-1"))
        note_request_id(scope, self.request_id)
        self.path = path_of(scope)
        self.reservation: Reservation | None = None
        self.body_reader: BodyReader | None = None
        self.status = 500
        self.has_begun = False

    async def receive(self) -> Message:
        """Return the body whole, within its limits; then what the server says."""
        read, self.body_reader = self.body_reader, None
        if read is None:
            return await self._receive()
        body = await read(self._receive)
        if self.reservation is not None:
            await self.reservation.wait_for_parse_slot()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Send a message; what begins an answer gets the headers that all answers have."""
        if message["type"] == "http.response.start":
            self.has_begun, self.status = True, message["status"]
            headers = list(message.get("headers", ()))
            if b"upgrade" in self.headers:
                headers = closing(headers)
            given = dict(headers)
            headers += [each for each in RAW_SECURITY_HEADERS if each[0] not in given]
            headers.append((_ID, self.request_id.encode()))
            message = {**message, "headers": headers}
        await self._send(message)


def _log(scope: Scope, route: str, status: int, seconds: float) -> None:
    level = logging.DEBUG if route in HEALTH_PATHS else logging.INFO
    if not logger.isEnabledFor(level):
        return
    fields: dict[str, object] = {"method": scope["method"], "route": route, "status": status}
    fields |= {"ms": round(seconds * 1000, 1)} | log_fields_of(scope)
    line = " ".join(f"{name}={value}" for name, value in fields.items())
    logger.log(level, "request %s", line, extra=structured("request", fields))
