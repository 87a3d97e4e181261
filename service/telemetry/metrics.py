"""What operators see: Prometheus metrics, and one log line a request.

A text never appears here. Label values come from small fixed sets, whatever a client sends.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from longtail.service.telemetry.feedback_metrics import FeedbackMetrics
from longtail.service.telemetry.model_metrics import ModelMetrics

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
        self._request_seconds = Histogram(
            "longtail_http_request_duration_seconds",
            "From the request's head to the end of the answer.",
            ("method", "route", "status_class"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._predict_seconds = Histogram(
            "longtail_predict_duration_seconds",
            "Model work for one request, without waiting.",
            ("scorer", "version"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._phase_seconds = Histogram(
            "longtail_phase_duration_seconds",
            "Work by phase: queue (of a request's texts), tokenise, encode, rank (of a batch).",
            ("phase",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._batch_texts = Histogram(
            "longtail_batch_texts",
            "Texts computed together.",
            buckets=_SIZES[:10],
            registry=self.registry,
        )
        self._batch_tokens = Histogram(
            "longtail_batch_tokens",
            "Tokens computed together, without padding.",
            buckets=_SIZES[3:],
            registry=self.registry,
        )
        self._queue_tokens = Gauge(
            "longtail_queue_tokens",
            "Tokens of all texts that are waiting or being computed, about.",
            registry=self.registry,
        )
        self._lines = Counter(
            "longtail_batch_lines",
            "Lines of streams that were answered, by how.",
            ("outcome",),
            registry=self.registry,
        )
        self._problems = Counter(
            "longtail_problems",
            "Requests answered with a problem document, by the kind of problem.",
            ("reason",),
            registry=self.registry,
        )
        self._answer_seconds = Histogram(
            "longtail_version_answer_duration_seconds",
            "From the choice of a version, for a request or a line that names none, to its answer.",
            ("version",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._failures = Counter(
            "longtail_version_failures",
            "Requests and lines naming no version that got no answer from the one chosen for them.",
            ("version",),
            registry=self.registry,
        )
        self._reviews = Counter(
            "longtail_reviews",
            "Texts that were to be reviewed, by what became of it.",
            ("outcome",),
            registry=self.registry,
        )
        self._review_seconds = Histogram(
            "longtail_review_duration_seconds",
            "From the candidates of a text to the end of its review, waiting included.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        # The series of each set of label values, looked up once.
        self._requests_of = cache(self._request_seconds.labels)
        self._predictions_of = cache(self._predict_seconds.labels)
        self._phases_of = cache(self._phase_seconds.labels)
        self._answers_of = cache(self._answer_seconds.labels)
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

    def observe_answer(self, version: int, seconds: float) -> None:
        """Count an answer to what named no version, by the version that was chosen for it."""
        self._answers_of(version).observe(seconds)

    def count_failure(self, version: int) -> None:
        """Count what named no version and got no answer from the version chosen for it."""
        self._failures.labels(str(version)).inc()

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
        """Count one line of a stream: `result`, or the kind of its error."""
        self._lines.labels(outcome).inc()

    def count_problem(self, reason: str) -> None:
        """Count one problem document."""
        self._problems.labels(reason).inc()

    def observe_review(self, outcome: str, seconds: float) -> None:
        """Count one review: `reviewed`, or one of `ReviewFailure`."""
        self._reviews.labels(outcome).inc()
        self._review_seconds.observe(seconds)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
