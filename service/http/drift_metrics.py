"""Metrics of drift: how far requested texts are from the training documents of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from longtail.models.results import Prediction
from longtail.service.engine.engine import EngineAnswer
from longtail.service.engine.queries import Query
from longtail.service.versions.serving import ServedModel

_COSINES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
_OUTCOMES = ("yes", "no", "unknown")
_MAX_VERSIONS = 8
"""Whose predicted labels are remembered, the last ones: a byte a label of each."""


class DriftMetrics:
    """What answers say about drift, as Prometheus metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
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
        self._versions: dict[int, _Version] = {}

    def observe(self, query: Query, answer: EngineAnswer) -> None:
        """Count the texts of an answer."""
        counted = self._versions.get(answer.model.version) or self._begin(answer.model)
        num_new = num_words = num_known = 0
        threshold = _threshold_of(query, answer)
        for prediction in answer.predictions:
            counted.texts[_outcome(prediction, threshold)].inc()
            num_new += counted.note_labels(prediction)
            about = prediction.familiarity
            if about is not None:
                num_words += about.num_words
                num_known += about.known_words
                if about.nearest_similarity is not None:
                    counted.similarity.observe(about.nearest_similarity)
        if num_words:
            counted.known_words.inc(num_known)
            counted.unknown_words.inc(num_words - num_known)
        if num_new:
            counted.num_predicted.inc(num_new)

    def _begin(self, model: ServedModel) -> _Version:
        version, num_labels = str(model.version), len(model.predictor.catalogue)
        self._num_labels.labels(version).set(num_labels)
        counted = self._versions[model.version] = _Version(
            texts={outcome: self._texts.labels(version, outcome) for outcome in _OUTCOMES},
            known_words=self._words.labels(version, "yes"),
            unknown_words=self._words.labels(version, "no"),
            similarity=self._similarity.labels(version),
            num_predicted=self._num_predicted.labels(version),
            predicted=bytearray(num_labels),
        )
        if len(self._versions) > _MAX_VERSIONS:
            self._forget(next(iter(self._versions)))
        return counted

    def _forget(self, version: int) -> None:
        del self._versions[version]
        for gauge in (self._num_labels, self._num_predicted):
            gauge.remove(str(version))


@dataclass(frozen=True, slots=True)
class _Version:
    """What is counted of a version, looked up once.

    Attributes:
        texts: By outcome.
        known_words: Words in the vocabulary.
        unknown_words: Words that are not.
        similarity: Of the nearest documents.
        num_predicted: Labels in `predicted`.
        predicted: 1 for each label that was answered, by row.
    """

    texts: Mapping[str, Counter]
    known_words: Counter
    unknown_words: Counter
    similarity: Histogram
    num_predicted: Gauge
    predicted: bytearray

    def note_labels(self, prediction: Prediction) -> int:
        """Mark the labels of a text; return how many were not answered before."""
        num_new = 0
        for label in prediction.labels:
            if not self.predicted[label.index]:
                self.predicted[label.index] = 1
                num_new += 1
        return num_new


def _threshold_of(query: Query, answer: EngineAnswer) -> float | None:
    """Return the model's own threshold; None where the best label answered need not be the best."""
    asked = query.asked
    threshold = answer.model.thresholds.get(answer.scorer) if asked.is_plain else None
    if isinstance(asked.threshold, str):  # as many labels as the text needs
        return None
    if threshold is not None and (asked.threshold or 0) > threshold:
        return None
    return threshold


def _outcome(prediction: Prediction, threshold: float | None) -> str:
    if threshold is None:
        return "unknown"
    best = max((label.probability or 0 for label in prediction.labels), default=0)
    return "yes" if best >= threshold else "no"
