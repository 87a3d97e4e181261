"""Traces by OpenTelemetry, where they are switched on: a span for each request, and for its phases.

The packages are an extra (`longtail[otel]`) and are imported only when tracing is on. Attributes
are those of the log line; a text is never among them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from threading import Thread
from typing import TYPE_CHECKING

from starlette.types import Scope

from longtail.models.extras import is_installed, needs

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

logger = logging.getLogger(__name__)

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_LAST_SPANS_S = 2.0
"""Waited for spans to be sent when the service ends."""


class Tracing:
    """Makes spans and sends them."""

    def __init__(self, provider: TracerProvider) -> None:
        """Take who makes the spans and knows where they go."""
        self._provider = provider
        self._tracer = provider.get_tracer("longtail")

    def note_phases(self, phases: Mapping[str, tuple[float, float]]) -> None:
        """Make spans of what was done for the request at hand.

        Args:
            phases: The beginning and end of each, in seconds by `time.perf_counter`.
        """
        epoch_ns = time.time_ns() - time.perf_counter_ns()
        for name, (started, ended) in phases.items():
            span = self._tracer.start_span(name, start_time=epoch_ns + int(started * 1e9))
            span.end(epoch_ns + int(ended * 1e9))

    def start_request(self, scope: Scope) -> Span:
        """Begin the span of a request; it continues the trace that the request's headers name."""
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in
                   scope["headers"]}  # fmt: skip
        return self._tracer.start_span(
            scope["method"], context=extract(headers), kind=SpanKind.SERVER
        )

    def close(self) -> None:
        """Send what is left; what can't be sent in a moment is dropped."""
        thread = Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        thread.start()
        thread.join(_LAST_SPANS_S)


def make_tracing(release: str) -> Tracing | None:
    """Return what makes and sends traces; None where no variable says where to send them.

    Args:
        release: Of this service.
    """
    if not any(map(os.environ.get, ENDPOINT_VARIABLES)):
        return None
    if not is_installed("otel"):
        logger.warning("no traces: OpenTelemetry %s", needs("otel"))
        return None
    return Tracing(_make_provider(release))


def _make_provider(release: str) -> TracerProvider:
    """Return what the variables of OpenTelemetry describe."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    ours = Resource.create({"service.name": "longtail", "service.version": release})
    said = OTELResourceDetector().detect()  # wins
    provider = TracerProvider(resource=ours.merge(said), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
