"""Metrics of drift: how far the texts that come are from those that a model learned from."""

from __future__ import annotations

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from models.results import Prediction
from service.engine.engine import EngineAnswer
from service.engine.queries import NamedLabels, Query

_COSINES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
_ANY_LABEL = NamedLabels()
_MAX_VERSIONS = 8
"""Whose predicted labels are remembered, the last ones: a byte a label of each."""


class DriftMetrics:
    """What answers say about drift, as Prometheus metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics."""
        self._texts = Counter(
            "longtail_texts",
            "Texts answered, by whether the best label reaches the model's own threshold (yes, no; "
            "unknown: without a threshold, or where filters or options change what is best).",
            ("version", "reaches_threshold"),
            registry=registry,
        )
        self._words = Counter(
            "longtail_words",
            "Words of the texts answered, by whether the sparse model's vocabulary has them.",
            ("version", "known"),
            registry=registry,
        )
        self._similarity = Histogram(
            "longtail_nearest_document_similarity",
            "Cosine (tf-idf) of a text and the nearest training document, where a scorer looks.",
            ("version",),
            buckets=_COSINES,
            registry=registry,
        )
        self._num_predicted = Gauge(
            "longtail_labels_predicted",
            "Different labels that were answered since the start.",
            ("version",),
            registry=registry,
        )
        self._num_labels = Gauge(
            "longtail_labels", "Labels of a version that answers.", ("version",), registry=registry
        )
        self._predicted: dict[int, bytearray] = {}

    def observe(self, query: Query, answer: EngineAnswer) -> None:
        """Count the texts of an answer.

        Args:
            query: What was asked.
            answer: What was found.
        """
        version = str(answer.model.version)
        threshold = _threshold_of(query, answer)
        outcomes: Tally[str] = Tally()
        num_words = num_known = 0
        for prediction in answer.predictions:
            outcomes[_outcome(prediction, threshold)] += 1
            about = prediction.familiarity
            if about is not None:
                num_words += about.num_words
                num_known += about.known_words
                if about.nearest_similarity is not None:
                    self._similarity.labels(version).observe(about.nearest_similarity)
        for outcome, count in outcomes.items():
            self._texts.labels(version, outcome).inc(count)
        if num_words:
            self._words.labels(version, "yes").inc(num_known)
            self._words.labels(version, "no").inc(num_words - num_known)
        self._note_labels(answer)

    def _note_labels(self, answer: EngineAnswer) -> None:
        version, num_labels = answer.model.version, len(answer.model.predictor.catalogue)
        predicted = self._predicted.get(version)
        if predicted is None:
            predicted = self._predicted[version] = bytearray(num_labels)
            self._num_labels.labels(str(version)).set(num_labels)
            if len(self._predicted) > _MAX_VERSIONS:
                self._forget(next(iter(self._predicted)))
        num_new = 0
        for prediction in answer.predictions:
            for label in prediction.labels:
                if not predicted[label.index]:
                    predicted[label.index] = 1
                    num_new += 1
        if num_new:
            self._num_predicted.labels(str(version)).inc(num_new)

    def _forget(self, version: int) -> None:
        del self._predicted[version]
        for gauge in (self._num_labels, self._num_predicted):
            gauge.remove(str(version))


def _threshold_of(query: Query, answer: EngineAnswer) -> float | None:
    """Return the model's own threshold; None where the best label answered need not be the best."""
    options = query.options
    is_plain = query.labels == _ANY_LABEL and options.aim is None and options.tail_dial == 0
    threshold = answer.model.thresholds.get(answer.scorer) if is_plain else None
    if threshold is not None and (options.threshold or 0) > threshold:
        return None
    return threshold


def _outcome(prediction: Prediction, threshold: float | None) -> str:
    if threshold is None:
        return "unknown"
    best = max((label.probability or 0 for label in prediction.labels), default=0)
    return "yes" if best >= threshold else "no"
