"""From rankings to predictions: labels with probabilities, above a threshold, with warnings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float32, Float64
from scipy.special import expit

from longtail.models.bundle.manifest import Calibration
from longtail.models.errors import LongtailError, RequestError
from longtail.models.fitted.part import Answered, Asked, FittedPart
from longtail.models.fitted.promises import ACCEPT
from longtail.models.fitted.registry import PARTS
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.options import Option, RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.scorer_set import Resolved, ScorerSet, concerned
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.results import AnswerWarning, Prediction, ScoredLabel
from longtail.models.scorers.calibration import by_rarity, log_odds_of, most_by_rarity
from longtail.models.scorers.reliability import warnings_about


class Presenter:
    """Turns the rankings of a model's scorers into predictions."""

    def __init__(self, scorers: ScorerSet, catalogue: LabelCatalogue, parts: ModelParts) -> None:
        self._scorers = scorers
        self._catalogue = catalogue
        fitted = [(part, part.of(parts)) for part in PARTS.values()]
        self._lacking = [
            part for part, _ in fitted if part.option and part.name not in parts.fitted
        ]
        self._prepared = _overridden(fitted, "prepared")
        self._annotated = _overridden(fitted, "annotated")
        self._concluded = _overridden(fitted, "concluded")

    def predict(self, batch: TextBatch, options: RankingOptions) -> list[Prediction]:
        """Return the best labels of each text, without explanations."""
        if options.schemes:
            parts = [self.predict(batch, each) for each in options.schemes]
            return [_joined(options.schemes, found) for found in zip(*parts, strict=True)]
        self._check_parts(options)
        query = self._scorers.resolve(options)
        calibration = self._calibration(query)
        if options.threshold is not None and calibration is None:
            self._refuse_threshold(options.threshold, query.scorer)
        asked = Asked(
            batch, options, query.scorer, calibration, [None] * len(batch.texts), options.k,
            self._catalogue.training_counts,
        )  # fmt: skip
        for prepared, value in concerned(self._prepared, options):
            asked = prepared(value, asked)
        if not batch.texts:
            return []
        if not query.is_weighed or not any(asked.of_texts):
            return self._predictions(asked, query)
        found = []
        for row, own in enumerate(asked.of_texts):  # each text has probabilities of its own
            alone = replace(asked, batch=batch.take([row]), of_texts=[own])
            found += self._predictions(alone, replace(query, calibration=own))
        return found

    def _check_parts(self, options: RankingOptions) -> None:
        """Refuse options of parts that the model lacks."""
        for part in self._lacking:
            assert part.option is not None
            value = options.of_part(part.option.name)
            if value is not None and value is not False:
                raise RequestError(
                    f"{part.option.name} is {value!r}, and the model has no {part.name}; "
                    f"{part.remedy}"
                )

    def _predictions(self, asked: Asked, query: Resolved) -> list[Prediction]:
        """Return the predictions of a prepared query."""
        answered, scores = self._answered(asked, query)
        for annotated, value in concerned(self._annotated, asked.options):
            answered = annotated(value, answered)
        num_texts, depth = answered.labels.shape
        marks, probabilities = (
            [[None] * depth] * num_texts if each is None else each.tolist()
            for each in (answered.accepted, answered.probabilities)
        )
        labels = [
            self._labels(*of_text, asked.options.k, query.scorer)
            for of_text in zip(
                answered.labels.tolist(), scores.tolist(), probabilities, answered.least,
                marks, strict=True,
            )
        ]  # fmt: skip
        predictions = self._with_extents(answered, query, labels)
        for concluded, value in concerned(self._concluded, asked.options):
            predictions = concluded(value, predictions, answered)
        return predictions

    def _answered(
        self, asked: Asked, query: Resolved
    ) -> tuple[Answered, Float32[np.ndarray, "text depth"]]:
        """Return the ranked labels of the texts, and their scores."""
        options = asked.options
        if asked.depth != options.k:
            options = replace(options, k=asked.depth)
        ranking = self._scorers.rank(asked.batch, options, query)
        log_odds = probabilities = None
        if asked.calibration is not None:
            scores = ranking.scores
            if query.is_weighed:  # else they are scores
                scores = self._scorers.score(
                    asked.batch, ranking.labels, options, replace(query, is_weighed=False)
                )
            rows_of: dict[Calibration, list[int]] = {}
            for row, own in enumerate(asked.of_texts):
                rows_of.setdefault(own or asked.calibration, []).append(row)
            log_odds = np.empty(scores.shape)
            for own, rows in rows_of.items():
                log_odds[rows] = log_odds_of(own, scores[rows])
            counts = asked.training_counts[ranking.labels]
            probabilities = expit(by_rarity(asked.calibration, log_odds, counts))
            if not query.is_weighed and self._may_lack(asked, log_odds, probabilities):
                deeper = min(2 * asked.depth, self._scorers.num_labels)
                return self._answered(replace(asked, depth=deeper), query)
        num_texts, threshold = len(ranking.labels), options.threshold
        answered = Answered(
            asked=asked,
            labels=ranking.labels,
            log_odds=log_odds,
            probabilities=probabilities,
            least=[None if isinstance(threshold, str) else threshold] * num_texts,
            accepted=None,
        )
        return answered, ranking.scores

    def _may_lack(
        self,
        asked: Asked,
        log_odds: Float64[np.ndarray, "text depth"],
        probabilities: Float64[np.ndarray, "text depth"],
    ) -> bool:
        """Whether labels behind the ranked ones may pass the threshold where fewer than k do."""
        least, depth = asked.options.threshold, log_odds.shape[1]
        if asked.calibration is None or least is None or isinstance(least, str):
            return False
        is_short = (probabilities >= least).sum(axis=1) < asked.options.k
        most = expit(most_by_rarity(asked.calibration, log_odds[:, -1]))
        return depth < self._scorers.num_labels and bool((is_short & (most >= least)).any())

    def _with_extents(
        self, answered: Answered, query: Resolved, labels: Sequence[tuple[ScoredLabel, ...]]
    ) -> list[Prediction]:
        """Return predictions with the labels of each text, and how much of it was read."""
        asked = answered.asked
        warns = asked.calibration is not None and self._scorers.is_overconfident(query.scorer)
        found = []
        for own, least, extent, familiarity in zip(
            labels, answered.least,
            self._scorers.extents(asked.batch, query.scorer), asked.batch.familiarities(),
            strict=True,
        ):  # fmt: skip
            warnings: tuple[AnswerWarning, ...] = ()
            if warns:
                scored = ((label.index, label.probability) for label in own)
                warnings = warnings_about(query.scorer, scored, self._catalogue, least)
            found.append(
                Prediction(
                    labels=own,
                    num_tokens=extent.num_tokens,
                    truncated=extent.num_tokens < extent.num_text_tokens,
                    exact=True,
                    correction=query.correction,
                    num_text_tokens=extent.num_text_tokens,
                    known_tokens=extent.known_tokens,
                    warnings=warnings,
                    familiarity=familiarity,
                )
            )
        return found

    def _labels(
        self,
        labels: Sequence[int],
        scores: Sequence[float],
        probabilities: Sequence[float | None],
        threshold: float | None,
        marks: Sequence[bool | None],
        k: int,
        scorer: str,
    ) -> tuple[ScoredLabel, ...]:
        """Return the first k labels that pass the threshold; their scores are numbers."""
        found: list[ScoredLabel] = []
        for index, score, probability, mark in zip(
            labels, scores, probabilities, marks, strict=True
        ):
            if index == NO_LABEL or len(found) == k:
                break
            if threshold is not None and (probability or 0) < threshold:
                continue
            label = self._catalogue[index]
            if not math.isfinite(score) or not math.isfinite(probability or 0):
                raise LongtailError(
                    f"scorer {scorer!r} gave label {label.id!r} the score {score!r}; the model "
                    "is damaged or numerically unstable: train it again"
                )
            found.append(ScoredLabel(label.id, label.name, score, probability, mark, index=index))
        return tuple(found)

    def _calibration(self, query: Resolved) -> Calibration | None:
        """Return what makes log-odds of the scores of a query; None where nothing does.

        A tail dial, or another correction than in training, leaves no log-odds.
        """
        is_as_trained = query.correction == self._scorers.correction_of(query.scorer)
        if query.tail_dial == 0 and is_as_trained:
            return self._scorers.calibration_of(query.scorer)
        return None

    def _refuse_threshold(self, threshold: float | str, scorer: str) -> NoReturn:
        """Say why there are no probabilities to compare with a threshold."""
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


def _overridden(
    fitted: Sequence[tuple[FittedPart[Any], Any]], name: str
) -> list[tuple[Option | None, Callable[..., Any], Any]]:
    """Return option, method and value of each part that has this method of its own."""
    default = getattr(FittedPart, name)
    return [
        (part.option, getattr(part, name), value)
        for part, value in fitted
        if getattr(type(part), name) is not default
    ]


def _joined(schemes: Sequence[RankingOptions], found: Sequence[Prediction]) -> Prediction:
    """Return the labels of all schemes as one answer, best first; they have the same scorer."""
    labels = [
        replace(label, scheme=None if each.label_filter is None else each.label_filter.scheme)
        for each, of_scheme in zip(schemes, found, strict=True)
        for label in of_scheme.labels
    ]
    answered = zip(schemes, found, strict=True)
    reasons = [x.abstained_because for each, x in answered if each.of_part(ACCEPT.name)]
    return replace(
        found[0],
        labels=tuple(sorted(labels, key=lambda x: (-x.score, x.index))),
        warnings=tuple(dict.fromkeys(x for of_scheme in found for x in of_scheme.warnings)),
        abstained=all(reasons) if reasons else None,
        abstained_because=reasons[0] if all(reasons) and reasons else None,
    )
