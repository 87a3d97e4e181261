"""Refuses requests for which there is no room, before anything of them is read.

Under many times the load that can be borne, it is refusing that costs the most. So it comes before
all else, and a request that is refused here is counted, but has no line in the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longtail.service.engine.admission import Admission
from longtail.service.engine.shares import set_client
from longtail.service.errors import QueueFullError
from longtail.service.middleware.security import RAW_SECURITY_HEADERS
from longtail.service.telemetry.logs import REQUEST_ID_HEADER, request_id_of
from longtail.service.telemetry.metrics import Telemetry
from longtail.service.web.paths import STREAM_PATHS, path_of
from longtail.service.web.problem_handlers import problem_body
from longtail.service.wire.problems import MEDIA_TYPE, OVERLOADED

logger = logging.getLogger(__name__)

_LOG_EVERY_S = 1.0
_FAILURES = frozenset({500, 504})
_ID_HEADER = REQUEST_ID_HEADER.lower().encode()
_HEADERS = [(b"content-type", MEDIA_TYPE.encode()), *RAW_SECURITY_HEADERS]


class LoadSheddingMiddleware:
    """Holds a reservation for each request that asks for work, or answers 429."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        admission: Admission,
        telemetry: Telemetry,
        timeout_s: float,
        routes: Sequence[BaseRoute],
        is_for_browsers: bool,
        client_of: Callable[[Scope], str],
        on_failure: Callable[[], None],
    ) -> None:
        """Stand in front of an application.

        Args:
            app: The application; it refuses too, where it finds that there is no room.
            admission: Knows whether there is room.
            telemetry: Counts what is refused.
            timeout_s: The time limit of a request that names none.
            routes: Of which those that take a POST ask for work.
            is_for_browsers: Whether pages of other origins may ask; what they do is let through, as
                a browser shows them no refusal without the headers that the application adds.
            client_of: Says whose request it is; no client may take all the room.
            on_failure: Called when a request fails by a fault of the service or runs out of time.
        """
        self._app = app
        self._admission = admission
        self._telemetry = telemetry
        self._timeout_s = timeout_s
        self._routes = [
            route
            for route in routes
            if isinstance(route, APIRoute) and "POST" in (route.methods or ())
        ]
        self._is_for_browsers = is_for_browsers
        self._client_of = client_of
        self._on_failure = on_failure
        self._num_refused = 0
        self._told_at = -_LOG_EVERY_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with a reservation if it asks for work, or refuse it."""

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in _FAILURES:
                self._on_failure()
            await send(message)

        try:
            await self._pass_on(scope, receive, send_and_note)
        except Exception:  # a 500 that is made further outside
            self._on_failure()
            raise

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            set_client(self._client_of(scope))
        route = self._route_of(scope)
        if route is None:
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        try:
            reservation = self._admission.reserve(self._timeout_s)
        except QueueFullError as error:
            await self._refuse(scope, send, error)
            seconds = time.perf_counter() - started
            self._telemetry.observe_request("POST", route.path, OVERLOADED.status, seconds)
            return

        async def receive_in_turn() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                await reservation.wait_for_parse_slot()
            return message

        try:
            if path_of(scope) in STREAM_PATHS:
                reservation.release()  # a stream's lines wait for room, each by itself
                await self._app(scope, receive, send)
            else:
                await self._app(scope, receive_in_turn, send)
        finally:
            reservation.release()

    def _route_of(self, scope: Scope) -> APIRoute | None:
        """Return the route of a request for work; None where it is none or may not be refused."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        if self._is_for_browsers and _header(scope, b"origin") is not None:
            return None
        path = path_of(scope)
        return next((route for route in self._routes if route.path_regex.match(path)), None)

    async def _refuse(self, scope: Scope, send: Send, error: QueueFullError) -> None:
        self._telemetry.count_problem(OVERLOADED.slug)
        self._num_refused += 1
        now = time.monotonic()
        if now >= self._told_at + _LOG_EVERY_S:
            logger.warning("overloaded: %d requests refused unread; %s", self._num_refused, error)
            self._num_refused, self._told_at = 0, now
        body = problem_body(scope, OVERLOADED, str(error))
        given = _header(scope, _ID_HEADER)
        headers = [
            *_HEADERS,
            (b"content-length", b"%d" % len(body)),
            (b"retry-after", b"%d" % error.retry_after_s),
            (_ID_HEADER, request_id_of(given).encode()),
        ]
        start = {"type": "http.response.start", "status": OVERLOADED.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": body})


def _header(scope: Scope, expected: bytes) -> str | None:
    """Return the value of a request's header; None where it has none of this name."""
    found = (value.decode("latin-1") for name, value in scope["headers"] if name == expected)
    return next(found, None)
