"""The Prometheus metrics, from the collectors that the service registers."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics import MetricWrapperBase

from docs.generation.markdown import page, table
from longtail.service.telemetry.metrics import Telemetry

_INTRODUCTION = """\
Which Prometheus metrics does `GET /metrics` give?

Times are in seconds. Values of labels come from small fixed sets, whatever clients send, and no text ever appears.
Besides these there are `process_*` (memory, processor time, open files, start) and `python_gc_*` of the Prometheus client.
A histogram is read by its `_bucket`, `_sum` and `_count`; a counter's name ends in `_total`.
Alerts and what to do about them: [operations](../../service/OPERATIONS.md). Log lines and traces: [log and traces](log-and-traces.md)."""


def render() -> str:
    """Return the page."""
    rows = [
        (f"`{_name(metric)}`", metric._type or "", ", ".join(f"`{label}`" for label in metric._labelnames),
         metric._documentation)
        for metric in _metrics(Telemetry())
    ]  # fmt: skip
    listed = table(("metric", "type", "labels", "meaning"), rows)
    return page("Metrics of the service", "service/telemetry/", _INTRODUCTION, listed)


def metric_names() -> Iterator[str]:
    """Yield the name of each metric."""
    return map(_name, _metrics(Telemetry()))


def _metrics(owner: object) -> Iterator[MetricWrapperBase]:
    """Yield the metrics that an object holds, and those of objects that it holds."""
    for value in vars(owner).values():
        if isinstance(value, MetricWrapperBase):
            yield value
        elif type(value).__module__.startswith("longtail.service."):
            yield from _metrics(value)


def _name(metric: MetricWrapperBase) -> str:
    return f"{metric._name}_total" if metric._type == "counter" else metric._name
