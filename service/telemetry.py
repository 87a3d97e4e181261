"""What operators see: Prometheus metrics, and one log line a request.

A text never appears here. Label values come from small fixed sets, whatever a client sends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.logs import REQUEST_ID_HEADER, request_id_of, start_log_context, structured
from service.model_metrics import ModelMetrics

logger = logging.getLogger("service.requests")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = tuple(2**power for power in range(18))
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
QUIET_ROUTES = frozenset({"/livez", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"})
"""Those that are asked all the time; their log lines are for debugging."""
_LOG_FIELDS = "log_fields"
_REQUEST_ID = "request_id"
_IS_CLIENT_GONE = "is_client_gone"
CLIENT_GONE_STATUS = 499
"""What nginx, too, logs for a client that hung up before its answer was complete."""


class Telemetry:
    """The metrics of one application, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._request_seconds = Histogram(
            "longtail_http_request_duration_seconds",
            "From the request's head to the end of the answer.",
            ("method", "route", "status_class"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._predict_seconds = Histogram(
            "longtail_predict_duration_seconds",
            "Model work for one request, without waiting.",
            ("scorer", "version"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._phase_seconds = Histogram(
            "longtail_phase_duration_seconds",
            "Work by phase: queue (of a request's texts), tokenise, encode, rank (of a batch).",
            ("phase",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._batch_texts = Histogram(
            "longtail_batch_texts",
            "Texts computed together.",
            buckets=_SIZES[:10],
            registry=self._registry,
        )
        self._batch_tokens = Histogram(
            "longtail_batch_tokens",
            "Tokens computed together, without padding.",
            buckets=_SIZES[3:],
            registry=self._registry,
        )
        self._queue_tokens = Gauge(
            "longtail_queue_tokens",
            "Tokens of all texts that are waiting or being computed, about.",
            registry=self._registry,
        )
        self._lines = Counter(
            "longtail_batch_lines",
            "Lines of streams that were answered, by how.",
            ("outcome",),
            registry=self._registry,
        )
        self._problems = Counter(
            "longtail_problems",
            "Requests answered with a problem document, by the kind of problem.",
            ("reason",),
            registry=self._registry,
        )
        self.models = ModelMetrics(self._registry)

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        method = method if method in _METHODS else "other"
        status_class = f"{status // 100}xx"
        self._request_seconds.labels(method, route, status_class).observe(seconds)

    def observe_predict(self, scorer: str, version: int, seconds: float) -> None:
        """Count the model work of one request; only for scorers that the model has."""
        self._predict_seconds.labels(scorer, str(version)).observe(seconds)

    def observe_phase(self, phase: str, seconds: float) -> None:
        """Count one piece of work; phases are our own names."""
        self._phase_seconds.labels(phase).observe(seconds)

    def observe_batch(self, num_texts: int, num_tokens: int) -> None:
        """Count one batch that was computed."""
        self._batch_texts.observe(num_texts)
        self._batch_tokens.observe(num_tokens)

    def watch_queue(self, num_tokens: Callable[[], float]) -> None:
        """Ask for the tokens that wait whenever somebody asks for the metrics."""
        self._queue_tokens.set_function(num_tokens)

    def count_line(self, outcome: str) -> None:
        """Count one line of a stream: `result`, or the kind of its error."""
        self._lines.labels(outcome).inc()

    def count_problem(self, reason: str) -> None:
        """Count one problem document."""
        self._problems.labels(reason).inc()

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


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


def add_log_fields(scope: Scope, **fields: object) -> None:
    """Add fields to the log line of a request; never a part of its text."""
    scope.setdefault("state", {}).setdefault(_LOG_FIELDS, {}).update(fields)


def log_fields_of(scope: Scope) -> dict[str, object]:
    """Return the fields that were added to the log line of a request."""
    fields: dict[str, object] = scope.get("state", {}).get(_LOG_FIELDS, {})
    return fields


def note_client_gone(scope: Scope) -> None:
    """Let a request count as one whose client hung up, though its answer had begun as another."""
    scope.setdefault("state", {})[_IS_CLIENT_GONE] = True


def final_status(scope: Scope, status: int) -> int:
    """Return the status that a request is logged and counted with.

    Args:
        scope: Of the request.
        status: With which its answer began.
    """
    return CLIENT_GONE_STATUS if scope.get("state", {}).get(_IS_CLIENT_GONE) else status


def route_of(scope: Scope) -> str:
    """Return the path of the route that a request came to, as it was declared; "none" if none."""
    return str(getattr(scope.get("route"), "path", "none"))


def request_id_headers(scope: Scope) -> Mapping[str, str]:
    """Return the header with a request's id, for answers that `TelemetryMiddleware` never sees."""
    request_id = scope.get("state", {}).get(_REQUEST_ID)
    return {REQUEST_ID_HEADER: request_id} if request_id else {}
