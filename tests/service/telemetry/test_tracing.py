"""Traces: a span for each request but those of probes, and no texts."""

import logging

import pytest

from longtail.service.app import create_app
from longtail.service.settings import Settings
from longtail.service.telemetry.logs import ENDPOINT_VARIABLES, TextFormatter

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="needs the extra 'otel'")
pytest.importorskip("opentelemetry.instrumentation.asgi", reason="needs the extra 'otel'")
from fastapi.testclient import TestClient  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (  # noqa: E402
    InMemorySpanExporter,
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def traced(registry, make_loader, wait_for_loading, exporter, fake_predictor):
    """A service whose spans are kept; it fails at the text "fail"."""

    class Failing(fake_predictor):
        def predict(self, texts, **options):
            if "fail" in texts:
                raise KeyError("secret")
            return super().predict(texts, **options)

    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = Settings(registry=registry.folder, watch_interval_s=0)
    app = create_app(settings, load=make_loader(predictor_class=Failing), tracing=provider)
    with TestClient(app, raise_server_exceptions=False) as client:
        wait_for_loading(client)
        exporter.clear()
        yield client


def spans_of(exporter):
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_request_is_a_span_named_after_its_route(traced, exporter):
    traced.post("/v1/predict", json={"texts": ["a", "b"], "k": 3})
    traced.get("/v1/labels/L1")
    traced.get("/nothing")
    traced.get("/livez")
    assert [span.name for span in exporter.get_finished_spans()] == [
        "POST /v1/predict", "GET /v1/labels/{label_id:path}", "GET none",
    ]  # fmt: skip


def test_no_span_has_a_text(traced, exporter):
    traced.post("/v1/predict", json={"text": "secret", "k": 3})
    traced.get("/v1/labels?query=secret")
    assert len(exporter.get_finished_spans()) == 2
    assert not any("secret" in span.to_json() for span in exporter.get_finished_spans())


def test_the_trace_of_the_client_goes_on(traced, exporter):
    traced.post("/v1/predict", json={"text": "a"}, headers=TRACEPARENT)
    spans = spans_of(exporter)
    assert {format(span.context.trace_id, "032x") for span in spans.values()} == {TRACE}
    assert format(spans["POST /v1/predict"].parent.span_id, "016x") == PARENT


def test_an_unexpected_error_is_said_without_its_words(traced, exporter):
    assert traced.post("/v1/predict", json={"text": "fail"}).status_code == 500
    span = spans_of(exporter)["POST /v1/predict"]
    assert (span.status.status_code.name, span.events) == ("ERROR", ())
    assert "secret" not in span.to_json()


def test_a_log_line_names_the_trace(traced, caplog):
    caplog.handler.setFormatter(TextFormatter())
    with caplog.at_level(logging.INFO, "longtail.service.requests"):
        traced.post("/v1/predict", json={"text": "a"}, headers=TRACEPARENT)
    assert f"trace_id={TRACE}" in caplog.text
