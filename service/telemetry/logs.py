"""The log of the process, and its traces.

Lines are plain or JSON, each with the id of the request it is about. Traces are OpenTelemetry's,
where they are switched on: a span for each request; the packages are an extra (`longtail[otel]`),
imported only then. A text never appears in either.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from longtail.models.extras import is_installed, needs

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

REQUEST_ID_HEADER = "X-Request-ID"
_GIVEN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_EVENT, _FIELDS = "event", "fields"
_CONTEXT: ContextVar[Mapping[str, str] | None] = ContextVar("log context", default=None)


def request_id_of(given: str | None) -> str:
    """Return the id that a client gave its request; a new one where it gave none that will do."""
    if given is not None and _GIVEN_ID.fullmatch(given):
        return given
    return f"{random.getrandbits(128):032x}"  # it need not be hard to guess


def start_log_context(**fields: str) -> None:
    """Begin with the lines about another request."""
    _CONTEXT.set(fields)


def log_context() -> Mapping[str, str]:
    """Return the fields of lines about the request at hand."""
    return _CONTEXT.get() or {}


def structured(event: str, fields: Mapping[str, object]) -> dict[str, object]:
    """Return what a call of a logger takes as `extra`, so that JSON has the fields of a line."""
    return {_EVENT: event, _FIELDS: fields}


class TextFormatter(logging.Formatter):
    """Lines for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """Return the line of a record, its context behind it."""
        line = super().formatMessage(record)
        return " ".join([line, *(f"{name}={value}" for name, value in log_context().items())])


class JsonFormatter(logging.Formatter):
    """Lines for machines: one JSON object each, times in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": time,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": getattr(record, _EVENT, None) or record.getMessage(),
            **log_context(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(level: str, form: str = "text") -> None:
    """Send the log of this process to standard error, one line a record; for `cli.py`.

    Args:
        level: The least severe that is written.
        form: "text" or "json".
    """
    # Of what a record could say, and no line of ours does (as logging's documentation advises).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # finds the caller's file and line
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # At every start it tells of each instruction set that it has no library for, as of a fault.
    for name in ("faiss.loader", "httpx"):  # which log every request to another service
        logging.getLogger(name).setLevel(logging.WARNING)


logger = logging.getLogger(__name__)

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_LAST_SPANS_S = 2.0
"""Waited for spans to be sent when the service ends."""


def add_tracing(
    app: FastAPI, provider: TracerProvider, routes: Sequence[BaseRoute], untraced: Iterable[str]
) -> None:
    """Make a span of each request; it continues the trace that the request's headers name.

    Args:
        app: The application, before it is started.
        provider: Takes the spans.
        routes: What the spans are named after.
        untraced: Paths of requests that have no spans.
    """
    from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware

    app.add_middleware(
        OpenTelemetryMiddleware,
        tracer_provider=provider,
        excluded_urls=",".join(f"{path}$" for path in untraced),
        exclude_spans=["receive", "send"],
        default_span_details=partial(_span_details, routes),
    )


def _span_details(routes: Sequence[BaseRoute], scope: Scope) -> tuple[str, dict[str, str]]:
    """Return the name and attributes of a span, without the query, which may hold a text."""
    found = (getattr(x, "path", "") for x in routes if x.matches(scope)[0] is Match.FULL)
    route = next(found, "none")
    names = ("http.route", "http.target", "http.url", "url.path", "url.query")
    return f"{scope['method']} {route}", dict.fromkeys(names, route)


def trace_fields() -> dict[str, str]:
    """Return the fields of a log line that say to which trace the request at hand belongs."""
    from opentelemetry.trace import get_current_span

    trace_id = get_current_span().get_span_context().trace_id
    return {"trace_id": f"{trace_id:032x}"} if trace_id else {}


def end_tracing(provider: TracerProvider) -> None:
    """Send the remaining spans; spans that can't be sent in a moment are dropped."""
    thread = Thread(target=provider.shutdown, name="last-spans", daemon=True)
    thread.start()
    thread.join(_LAST_SPANS_S)


def make_provider(release: str) -> TracerProvider | None:
    """Return what takes and sends spans; None where no variable says where to send them."""
    if not any(map(os.environ.get, ENDPOINT_VARIABLES)):
        return None
    if not is_installed("otel"):
        logger.warning("no traces: OpenTelemetry %s", needs("otel"))
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    ours = Resource.create({"service.name": "longtail", "service.version": release})
    said = OTELResourceDetector().detect()  # wins
    provider = TracerProvider(resource=ours.merge(said), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
