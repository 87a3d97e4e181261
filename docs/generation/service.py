"""Routes, settings and metrics of the service, from its own descriptions of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client.metrics import MetricWrapperBase

from docs.generation.markdown import code, sentence, table
from longtail.service.app import create_app
from longtail.service.settings import Settings, describe_settings


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document."""
    return create_app(Settings.model_construct()).openapi()


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the routes, as in "GET /livez", each with its operation."""
    for path, methods in openapi()["paths"].items():
        for method, operation in methods.items():
            if method != "parameters":
                yield f"{method.upper()} {path}", operation


def routes() -> str:
    """Return the table of routes, below a link to the page of Swagger UI beside it."""
    rows = [
        (code(name), sentence(each.get("description")) or each.get("summary", ""))
        for name, each in operations()
    ]
    link = '<a href="api/index.html">Parameters, bodies, answers and statuses of every route</a>'
    return f"{link}, as the service shows them at `/docs`.\n\n{table(('route', 'answers'), rows)}"


def settings() -> str:
    """Return the table of settings."""
    rows = [
        (
            code(each.variable),
            code(each.default),
            each.bounds or ", ".join(map(code, each.choices)) or _KINDS[each.kind],
            f"{each.help} {each.details}",
        )
        for each in describe_settings()
    ]
    return table(("variable", "default", "values", "meaning"), rows)


_KINDS = {int: "whole number", float: "number", str: "text", bool: "true or false", Path: "path"}


def metrics() -> str:
    """Return the table of metrics."""
    rows = [
        (code(name), metric._type or "", ", ".join(map(code, metric._labelnames)),
         metric._documentation)
        for name, metric in named_metrics()
    ]  # fmt: skip
    return table(("metric", "type", "labels", "meaning"), rows)


def named_metrics() -> Iterator[tuple[str, MetricWrapperBase]]:
    """Yield the metrics by the names under which Prometheus sees them."""
    for metric in _metrics(create_app(Settings.model_construct()).state.service.telemetry):
        yield f"{metric._name}_total" if metric._type == "counter" else metric._name, metric


def _metrics(owner: object) -> Iterator[MetricWrapperBase]:
    """Yield the metrics that an object holds, and those of objects that it holds."""
    for value in vars(owner).values():
        if isinstance(value, MetricWrapperBase):
            yield value
        elif type(value).__module__.startswith("longtail."):
            yield from _metrics(value)
