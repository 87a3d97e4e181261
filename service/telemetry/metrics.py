"""Prometheus metrics of requests, model versions and feedback, and one log line a request.

A text never appears here. Label values come from small fixed sets, whatever a client sends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from longtail.models.feedback import Entry

_LOAD_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class ModelMetrics:
    """What a `Redeployer` tells, as Prometheus metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self._loaded = gauge(
            "longtail_model_loaded", "1 for each model version that can answer.", ("version",)
        )
        self._draining = gauge(
            "longtail_model_draining",
            "Models that are served no more but are still held by requests.",
            ("version",),
        )
        self._share = gauge(
            "longtail_model_traffic_share",
            "Share of the requests naming no version that a version gets.",
            ("version",),
        )
        self._load_seconds = histogram(
            "longtail_model_load_duration_seconds",
            "From the decision to load a version to its first answers, by how it ended.",
            ("result",),
            buckets=_LOAD_SECONDS,
        )
        self._changes = counter(
            "longtail_model_changes",
            "Changes of what is served, by what was asked for and how it ended.",
            ("action", "result"),
        )
        self._overlap = gauge(
            "longtail_model_probe_overlap",
            "Share of the best labels of known texts that a version has in common with the one "
            "that was the default when it was loaded.",
            ("version",),
        )
        self._registry_problem = gauge(
            "longtail_registry_problem", "1 while the registry's alias can't be followed."
        )

    def set_models(
        self, loaded: Iterable[int], shares: Mapping[int, float], draining: Mapping[int, int]
    ) -> None:
        """Set which versions can answer, the share that each gets, and which are still held.

        Args:
            loaded: The versions that can answer.
            shares: Share of the requests naming no version, by version.
            draining: Old models of each version that are still in use.
        """
        for gauge in (self._loaded, self._draining, self._share):
            gauge.clear()
        for version in loaded:
            self._loaded.labels(str(version)).set(1)
        for version, count in draining.items():
            if count:
                self._draining.labels(str(version)).set(count)
        for version, share in shares.items():
            self._share.labels(str(version)).set(share)

    def observe_load(self, result: str, seconds: float) -> None:
        """Count one load."""
        self._load_seconds.labels(result).observe(seconds)

    def count_change(self, action: str, result: str) -> None:
        """Count one change."""
        self._changes.labels(action, result).inc()

    def set_overlap(self, version: int, share: float) -> None:
        """Say how far a version agrees with the one that it was compared with."""
        self._overlap.labels(str(version)).set(share)

    def set_registry_problem(self, is_problem: bool) -> None:
        """Say whether the registry can't be followed."""
        self._registry_problem.set(is_problem)


BANDS = ("0", "1", "2-9", "10-99", "100+")
_LOWER_BOUNDS = (1, 2, 10, 100)
"""Training documents from which on a label is in the next band."""
Verdicts: TypeAlias = Tally[tuple[str, str]]
"""Verdicts on labels by kind and frequency band."""


def band_of(training_count: int) -> str:
    """Return the band of frequency of a label, by its training documents."""
    return BANDS[bisect_right(_LOWER_BOUNDS, training_count)]


class FeedbackMetrics:
    """What is stored of feedback, as Prometheus metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        summary = partial(Summary, registry=registry)
        self._entries = counter(
            "longtail_feedback_entries",
            "Entries of feedback that were acknowledged: stored, or known before.",
            ("outcome",),
        )
        self._labels = counter(
            "longtail_feedback_labels",
            "Labels in stored entries: accepted, rejected or added, by training documents.",
            ("verdict", "training_documents"),
        )
        self._promised = counter(
            "longtail_feedback_promised_labels",
            "Labels in stored entries that the answer had accepted by a promise: accepted or "
            "rejected by people.",
            ("verdict",),
        )
        self._owed = counter(
            "longtail_feedback_promised_labels_owed",
            "How many of these labels are right where each promise is just kept: the sum of their "
            "promised precisions.",
        )
        self._accepted_share = summary(
            "longtail_feedback_accepted_share",
            "Share of the labels of an entry that were accepted, of those that were accepted or "
            "rejected, by the model version whose labels they are.",
            ("version",),
        )

    def count(self, entry: Entry, verdicts: Verdicts, *, is_new: bool) -> None:
        """Count an entry that was acknowledged, and its labels if it is new.

        Args:
            entry: The entry.
            verdicts: Its labels by verdict (`accepted`, `rejected`, `added`) and band.
            is_new: Whether it was stored now, and not before.
        """
        self._entries.labels("stored" if is_new else "known").inc()
        if not is_new:
            return
        for (verdict, band), number in verdicts.items():
            self._labels.labels(verdict, band).inc(number)
        accepted, rejected = (_total(verdicts, name) for name in ("accepted", "rejected"))
        if accepted + rejected:
            share = accepted / (accepted + rejected)
            self._accepted_share.labels(str(entry.version)).observe(share)
        if entry.promised_precision is not None:
            num_kept = len(set(entry.promised).intersection(entry.accepted))
            self._promised.labels("accepted").inc(num_kept)
            self._promised.labels("rejected").inc(len(entry.promised) - num_kept)
            self._owed.inc(entry.promised_precision * len(entry.promised))


def _total(verdicts: Verdicts, verdict: str) -> int:
    return sum(number for (name, _), number in verdicts.items() if name == verdict)


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = tuple(2**power for power in range(18))
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Telemetry:
    """The metrics of one application, in a registry of their own.

    Attributes:
        registry: Where further metrics register.
        models: Metrics of the model versions.
        feedback: Metrics of feedback.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self._request_seconds = histogram(
            "longtail_http_request_duration_seconds",
            "From the request's head to the end of the answer.",
            ("method", "route", "status_class"),
            buckets=_SECONDS,
        )
        self._predict_seconds = histogram(
            "longtail_predict_duration_seconds",
            "Model work for one request, without waiting.",
            ("scorer", "version"),
            buckets=_SECONDS,
        )
        self._phase_seconds = histogram(
            "longtail_phase_duration_seconds",
            "Work by phase: queue (of a request's texts), tokenise, encode, rank (of a batch).",
            ("phase",),
            buckets=_SECONDS,
        )
        self._batch_texts = histogram(
            "longtail_batch_texts", "Texts computed together.", buckets=_SIZES[:10]
        )
        self._batch_tokens = histogram(
            "longtail_batch_tokens",
            "Tokens computed together, without padding.",
            buckets=_SIZES[3:],
        )
        self._queue_tokens = gauge(
            "longtail_queue_tokens",
            "Tokens of all texts that are waiting or being computed, about.",
        )
        self._lines = counter(
            "longtail_batch_lines", "Lines of batches that were answered, by how.", ("outcome",)
        )
        self._problems = counter(
            "longtail_problems",
            "Requests answered with a problem document, by the kind of problem.",
            ("reason",),
        )
        # The series of each set of label values, looked up once.
        self._requests_of = cache(self._request_seconds.labels)
        self._predictions_of = cache(self._predict_seconds.labels)
        self._phases_of = cache(self._phase_seconds.labels)
        self.models = ModelMetrics(self.registry)
        self.feedback = FeedbackMetrics(self.registry)

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        method = method if method in _METHODS else "other"
        status_class = f"{status // 100}xx"
        self._requests_of(method, route, status_class).observe(seconds)

    def observe_predict(self, scorer: str, version: int, seconds: float) -> None:
        """Count the model work of one request; only for scorers that the model has."""
        self._predictions_of(scorer, version).observe(seconds)

    def observe_phase(self, phase: str, seconds: float) -> None:
        """Count one piece of work; phases are our own names."""
        self._phases_of(phase).observe(seconds)

    def observe_batch(self, num_texts: int, num_tokens: int) -> None:
        """Count one batch that was computed."""
        self._batch_texts.observe(num_texts)
        self._batch_tokens.observe(num_tokens)

    def watch_queue(self, num_tokens: Callable[[], float]) -> None:
        """Ask for the tokens that wait whenever somebody asks for the metrics."""
        self._queue_tokens.set_function(num_tokens)

    def count_line(self, outcome: str) -> None:
        """Count one line of a batch: `result`, or the kind of its error."""
        self._lines.labels(outcome).inc()

    def count_problem(self, reason: str) -> None:
        """Count one problem document."""
        self._problems.labels(reason).inc()

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
