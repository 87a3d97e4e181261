"""From rankings to predictions: labels with probabilities, above a threshold, with warnings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from longtail.models.bundle.manifest import Calibration
from longtail.models.errors import LongtailError, RequestError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.names import Abstention
from longtail.models.options import AUTO, AUTO_K, RankingOptions
from longtail.models.parts.batches import Extent, TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.scorer_set import Resolved, ScorerSet
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.results import (
    UNLIKE_TRAINING,
    AnswerWarning,
    Familiarity,
    LabelScore,
    Prediction,
)
from longtail.models.scorers.calibration import probabilities_of
from longtail.models.scorers.promises import Promise, promise_of
from longtail.models.scorers.reliability import warnings_about


class Presenter:
    """Makes predictions of what the scorers of a model rank."""

    def __init__(self, scorers: ScorerSet, catalogue: LabelCatalogue, parts: ModelParts) -> None:
        self._scorers = scorers
        self._catalogue = catalogue
        self._familiar = parts.familiar
        self._promises = parts.promises
        self._label_counts = parts.label_counts

    def predict(self, batch: TextBatch, options: RankingOptions) -> list[Prediction]:
        """Return the best labels of each text, without explanations.

        Args:
            batch: The texts.
            options: What is asked of each.

        Raises:
            RequestError: As `ScorerSet.rank` does; or there are no probabilities to compare with
                the threshold; or the model has not made the promise by which labels are accepted.
            DataError: The vector of a text is not finite.
            LongtailError: A score is not finite.
        """
        if options.schemes:
            parts = [self.predict(batch, each) for each in options.schemes]
            return [_joined(options.schemes, found) for found in zip(*parts, strict=True)]
        query = self._scorers.resolve(options)
        calibration = self._calibration(query)
        self._check_threshold(options.threshold, query.scorer, calibration)
        promise = self._promise(options, query, calibration)
        if not batch.texts:
            return []
        curves = self._calibrations_of(batch, query.scorer, calibration)
        if query.aim is None or not any(curves):
            return self._ranked(batch, options, query, curves, promise)
        found = []
        for row, curve in enumerate(curves):  # gains are of probabilities: each text has its own
            of_text = replace(query, calibration=curve)
            found += self._ranked(batch.take([row]), options, of_text, [curve], promise)
        return found

    def _ranked(
        self,
        batch: TextBatch,
        options: RankingOptions,
        query: Resolved,
        calibrations: Sequence[Calibration | None],
        promise: Promise | None,
    ) -> list[Prediction]:
        """Return the predictions of checked options, with the calibrations of each text."""
        calibration = self._calibration(query)
        least, looked_at = options.threshold, options
        if isinstance(least, str):
            depth = max(options.k, min(AUTO_K, self._scorers.num_labels))
            looked_at = replace(options, k=depth)
        ranking = self._scorers.rank(batch, looked_at, query)
        probabilities: Sequence[Sequence[float] | None] = [None] * len(ranking.labels)
        if calibration is not None:
            scores = ranking.scores
            if query.aim is not None:  # they are gains then
                scores = self._scorers.score(batch, ranking.labels, replace(options, aim=None))
            calibrated = probabilities_of(calibration, scores)
            for row, own in enumerate(calibrations):
                if own is not None:
                    calibrated[row] = probabilities_of(own, scores[row])
            probabilities = calibrated.tolist()
        warns = calibration is not None and self._scorers.is_overconfident(query.scorer)
        thresholds: Sequence[float | None]
        if isinstance(least, str):
            thresholds = self._label_counts[query.scorer].of_texts(calibrated).tolist()
        else:
            thresholds = [least] * len(ranking.labels)
        first = ranking.labels[:, : options.k]
        marks: Sequence[Sequence[bool | None]] = [[None] * first.shape[1]] * len(first)
        if promise is not None:
            counts = self._catalogue.training_counts[first]
            marks = promise.accepted(first, counts, calibrated[:, : options.k]).tolist()
        return [
            self._prediction(
                _checked(self._labels(labels, scores, own, threshold, marked), query.scorer),
                about,
                query,
                threshold,
                warns=warns,
                has_promise=promise is not None,
            )
            for labels, scores, own, threshold, marked, about in zip(
                first.tolist(),
                ranking.scores[:, : options.k].tolist(),
                probabilities,
                thresholds,
                marks,
                zip(
                    self._scorers.extents(batch, query.scorer),
                    batch.familiarities(),
                    strict=True,
                ),
                strict=True,
            )
        ]

    def _promise(
        self, options: RankingOptions, query: Resolved, calibration: Calibration | None
    ) -> Promise | None:
        """Return the promise that a query names, if it names one."""
        if options.accept is None or options.accept is False:
            return None
        promise = promise_of(self._promises, query.scorer, options.accept)
        if calibration is None:
            raise RequestError(
                f"accept is {options.accept!r} with a tail dial or without the scorer's "
                "correction, which leaves no probabilities to accept labels by; leave out one of "
                "the two"
            )
        return promise

    def _prediction(
        self,
        labels: tuple[LabelScore, ...],
        about: tuple[Extent, Familiarity],
        query: Resolved,
        threshold: float | None,
        *,
        warns: bool,
        has_promise: bool,
    ) -> Prediction:
        extent, familiarity = about
        scored = ((label.index, label.probability) for label in labels)
        warnings = () if self._familiar is None else self._familiar.warnings_about(familiarity)
        if warns:
            warnings += warnings_about(query.scorer, scored, self._catalogue, threshold)
        reason = None
        if has_promise:
            reason = _abstention(labels, extent, warnings)
            if reason is not None and any(label.accepted for label in labels):
                labels = tuple(replace(label, accepted=False) for label in labels)
        return Prediction(
            labels=labels,
            num_tokens=extent.num_tokens,
            truncated=extent.num_tokens < extent.num_text_tokens,
            exact=True,
            correction=query.correction,
            num_text_tokens=extent.num_text_tokens,
            known_tokens=extent.known_tokens,
            warnings=warnings,
            familiarity=familiarity,
            abstained_because=reason,
        )

    def _labels(
        self,
        labels: Sequence[int],
        scores: Sequence[float],
        probabilities: Sequence[float] | None,
        threshold: float | None,
        marks: Sequence[bool | None],
    ) -> tuple[LabelScore, ...]:
        found = []
        for i, (index, score, mark) in enumerate(zip(labels, scores, marks, strict=True)):
            probability = None if probabilities is None else probabilities[i]
            if index == NO_LABEL or (threshold is not None and (probability or 0) < threshold):
                break  # the probabilities fall with the scores; of an aim, all that pass are here
            label = self._catalogue[index]
            found.append(LabelScore(index, label.id, label.name, score, probability, mark))
        return tuple(found)

    def _calibration(self, query: Resolved) -> Calibration | None:
        """Return what makes log-odds of the scores of a query; None where nothing does.

        A tail dial, or another correction than in training, leaves no log-odds.
        """
        is_as_trained = query.correction == self._scorers.correction_of(query.scorer)
        if query.tail_dial == 0 and is_as_trained:
            return self._scorers.calibration_of(query.scorer)
        return None

    def _calibrations_of(
        self, batch: TextBatch, scorer: str, calibration: Calibration | None
    ) -> list[Calibration | None]:
        """Return the calibrations of texts that are shorter than documents; None of the others."""
        short = None if self._familiar is None else self._familiar.short_texts.get(scorer)
        if short is None or calibration is None:
            return [None] * len(batch.texts)
        return [short.of_text(calibration, known) for known in batch.word_counts[:, 1].tolist()]

    def _check_threshold(
        self, threshold: float | str | None, scorer: str, calibration: Calibration | None
    ) -> None:
        if threshold == AUTO and calibration is not None and scorer not in self._label_counts:
            there = ", ".join(self._label_counts) or "none"
            raise RequestError(
                f"threshold is 'auto', which was not fitted for scorer {scorer!r}; expected one of "
                f"{there}; give a number, or train with a dev split"
            )
        if threshold is None or calibration is not None:
            return
        if self._scorers.calibration_of(scorer) is not None:
            raise RequestError(
                f"threshold is {threshold} with a tail dial or without the scorer's correction, "
                "which leaves no probabilities to compare with it; leave out one of the two"
            )
        others = ", ".join(x for x in self._scorers.names if self._scorers.calibration_of(x))
        raise RequestError(
            f"scorer {scorer!r} gives no probabilities to compare with threshold {threshold}; "
            "leave the threshold out" + (f", or use one of {others}" if others else "")
        )


def _joined(schemes: Sequence[RankingOptions], found: Sequence[Prediction]) -> Prediction:
    """Return the labels of all schemes as one answer, best first; they have the same scorer."""
    labels = [
        replace(label, scheme=None if each.label_filter is None else each.label_filter.scheme)
        for each, of_scheme in zip(schemes, found, strict=True)
        for label in of_scheme.labels
    ]
    reasons = [x.abstained_because for each, x in zip(schemes, found, strict=True) if each.accept]
    return replace(
        found[0],
        labels=tuple(sorted(labels, key=lambda x: (-x.score, x.index))),
        warnings=tuple(dict.fromkeys(x for of_scheme in found for x in of_scheme.warnings)),
        abstained_because=reasons[0] if all(reasons) and reasons else None,
    )


def _abstention(
    labels: Sequence[LabelScore], extent: Extent, warnings: Sequence[AnswerWarning]
) -> Abstention | None:
    """Return why no label is accepted, whatever the promise says; None where one is."""
    if not extent.known_tokens:
        return "no-known-word"
    if any(each.code == UNLIKE_TRAINING for each in warnings):
        return "unlike-training"
    return None if any(label.accepted for label in labels) else "below-threshold"


def _checked(labels: tuple[LabelScore, ...], scorer: str) -> tuple[LabelScore, ...]:
    """Return labels whose scores are numbers."""
    for label in labels:
        if not math.isfinite(label.score) or not math.isfinite(label.probability or 0):
            raise LongtailError(
                f"scorer {scorer!r} gave label {label.id!r} the score {label.score!r}; the model "
                "is damaged or numerically unstable: train it again"
            )
    return labels
