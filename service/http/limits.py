"""Refusals before a route sees a request: no room for it, or a body that is too large.

Under many times the load that can be borne, refusing costs the most. So the room is looked at
first, and a request that is refused for want of it is counted, but has no line in the log.

Bodies are measured before and while they are read, and gzip ones unpacked. Queries of too many
parameters are refused, too. A client that hangs up before its body was sent whole is noticed here,
for all routes alike.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from longtail.service.engine.admission import Reservation
from longtail.service.errors import QueueFullError
from longtail.service.http.deps import Service
from longtail.service.http.problem_handlers import BodyError, inflater_for, problem_body
from longtail.service.wire.problems import MEDIA_TYPE, OVERLOADED, BadGzipError, Inflater

MAX_PARAMETERS = 4000
"""Most parameters of a query; the longest query takes a tenth of a second to parse."""

BodyReader: TypeAlias = Callable[[Receive], Awaitable[bytes]]


class BodyLimits:
    """The limits of the bodies that are read whole, in bytes sent and unpacked, and in time."""

    def __init__(self, max_bytes: int, timeout_s: float) -> None:
        """Take the limits.

        Args:
            max_bytes: Most bytes of a body.
            timeout_s: Seconds in which it must be received.
        """
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    def reader_for(self, scope: Scope, headers: Mapping[bytes, bytes]) -> BodyReader:
        """Return what reads the body of a request."""
        num_parameters = scope.get("query_string", b"").count(b"&") + 1
        if num_parameters > MAX_PARAMETERS:
            raise BodyError(
                431, f"the query has {num_parameters} parameters; expected at most {MAX_PARAMETERS}"
            )
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > self._max_bytes:
            raise self._too_long()
        encoding = headers.get(b"content-encoding")
        inflater = None if encoding is None else inflater_for(encoding.decode("latin-1"))
        return partial(self._read, inflater)

    async def _read(self, inflater: Inflater | None, receive: Receive) -> bytes:
        """Return the body of a request."""
        pieces: list[bytes] = []
        num_bytes, is_whole = 0, False
        try:
            async with asyncio.timeout(self._timeout_s):
                while not is_whole:
                    sent, is_whole = await _next_piece(receive)
                    for piece in (sent,) if inflater is None else inflater.feed(sent):
                        num_bytes += len(piece)
                        if num_bytes > self._max_bytes:
                            raise self._too_long()
                        pieces.append(piece)
            if inflater is not None:
                inflater.finish()
        except BadGzipError as error:
            raise BodyError(400, str(error)) from error
        except TimeoutError as error:
            detail = (
                f"The body did not come whole within {self._timeout_s:g} s; send it faster, or "
                "fewer texts in one request"
            )
            raise BodyError(408, detail, {"Connection": "close"}) from error
        return b"".join(pieces)

    def _too_long(self) -> BodyError:
        return BodyError(
            413,
            f"The body has more than {self._max_bytes} bytes; "
            "send fewer or shorter texts in one request",
        )


async def _next_piece(receive: Receive) -> tuple[bytes, bool]:
    """Return more of a body, and whether that was all."""
    message = await receive()
    if message["type"] != "http.request":
        raise BodyError(499, "The client hung up before its body was sent whole")
    return message.get("body", b""), not message.get("more_body", False)


logger = logging.getLogger(__name__)

_LOG_EVERY_S = 1.0
_BATCH_PATH = "/v1/batch"


class LoadShedding:
    """Holds a reservation for each request that asks for work, or answers 429."""

    def __init__(self, service: Service, routes: Sequence[BaseRoute]) -> None:
        """Refuse nothing yet.

        Args:
            service: Whose queue counts.
            routes: The routes; those that take a POST ask for work.
        """
        self._service = service
        self._routes = [
            route
            for route in routes
            if isinstance(route, APIRoute) and "POST" in (route.methods or ())
        ]
        self._num_refused = 0
        self._logged_at = -_LOG_EVERY_S

    def reserve(
        self, scope: Scope, path: str, headers: Mapping[bytes, bytes]
    ) -> Reservation | None:
        """Return room for a request; None where it asks for no work, or may not be refused here.

        Pages of other origins may not: their browsers show them no refusal without the headers for
        that, which are added later. A batch holds no room: its lines wait, each by itself.
        """
        settings = self._service.settings
        if scope["method"] != "POST" or (settings.cors_origins and b"origin" in headers):
            return None
        if self._route_of(path) is None:
            return None
        reservation = self._service.engine.admission.reserve(settings.request_timeout_s)
        if path == _BATCH_PATH:
            reservation.release()
        return reservation

    async def refuse(self, scope: Scope, path: str, send: Send, error: QueueFullError) -> None:
        """Send the answer to a request without room, and count it."""
        telemetry = self._service.telemetry
        route = self._route_of(path)
        assert route is not None
        telemetry.count_problem(OVERLOADED.slug)
        self._num_refused += 1
        now = time.monotonic()
        if now >= self._logged_at + _LOG_EVERY_S:
            logger.warning("overloaded: %d requests refused unread; %s", self._num_refused, error)
            self._num_refused, self._logged_at = 0, now
        body = problem_body(scope, OVERLOADED, str(error))
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"retry-after", b"%d" % error.retry_after_s),
        ]
        start = {"type": "http.response.start", "status": OVERLOADED.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": body})
        telemetry.observe_request("POST", route.path, OVERLOADED.status, time.monotonic() - now)

    def _route_of(self, path: str) -> APIRoute | None:
        return next((route for route in self._routes if route.path_regex.match(path)), None)
