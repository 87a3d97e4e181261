"""Refuses requests for which there is no room, before anything of them is read.

Under many times the load that can be borne, it is refusing that costs the most. So it comes before
all else, and a request that is refused here is counted, but has no line in the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import Scope, Send

from longtail.service.engine.admission import Reservation
from longtail.service.errors import QueueFullError
from longtail.service.web.deps import Service
from longtail.service.web.problem_handlers import problem_body
from longtail.service.web.scopes import STREAM_PATHS
from longtail.service.wire.problems import MEDIA_TYPE, OVERLOADED

logger = logging.getLogger(__name__)

_LOG_EVERY_S = 1.0


class LoadShedding:
    """Holds a reservation for each request that asks for work, or answers 429."""

    def __init__(self, service: Service, routes: Sequence[BaseRoute]) -> None:
        """Refuse nothing yet.

        Args:
            service: Whose queue counts.
            routes: Of which those that take a POST ask for work.
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
        that, which are added later. A stream holds no room: its lines wait, each by itself.

        Raises:
            QueueFullError: There is no room.
        """
        settings = self._service.settings
        if scope["method"] != "POST" or (settings.cors_origins and b"origin" in headers):
            return None
        if self._route_of(path) is None:
            return None
        reservation = self._service.engine.admission.reserve(settings.request_timeout_s)
        if path in STREAM_PATHS:
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
