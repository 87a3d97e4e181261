"""An outside opinion on the best labels of a text: who gets one, within which bounds.

The ordinary answer comes first. Its text, with its exact best n labels, then goes to the reviewer,
by the event loop or a thread of the reviewer's own, never by a compute thread. Whatever fails, the
ordinary answer is given, and says why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from longtail.models.errors import LongtailError, RequestError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.names import ReviewFailure
from longtail.models.results import Prediction, Review
from longtail.models.review.fitted import FittedReview
from longtail.models.review.registry import open_reviewer, read_key
from longtail.models.review.reviewer import Reviewer, ReviewError, attempted_scores, candidate_text
from longtail.service.engine.engine import Engine, EngineAnswer
from longtail.service.engine.queries import Query
from longtail.service.errors import DeadlineError
from longtail.service.schemas.predict import PredictRequest
from longtail.service.settings import Settings
from longtail.service.telemetry.metrics import Telemetry

logger = logging.getLogger(__name__)

_DAY_S = 86_400
_SPARE_S = 0.01
"""Of the time of a request, kept to write its answer."""


class _SpentError(Exception):
    """The reviews of the day are used up."""


@dataclass(slots=True)
class DayBudget:
    """Counts attempts of reviews by day (UTC)."""

    most: int
    clock: Callable[[], float] = time.time
    _day: int = 0
    _spent: int = 0

    def take(self) -> bool:
        """Count one more; return whether the day had room for it."""
        day = int(self.clock() // _DAY_S)
        if day != self._day:
            self._day, self._spent = day, 0
        if self._spent >= self.most:
            return False
        self._spent += 1
        return True


class ReviewDesk:
    """Gets reviews of answers, within the bounds of the settings; belongs to one event loop."""

    def __init__(self, reviewer: Reviewer, settings: Settings, telemetry: Telemetry) -> None:
        """Take the parts; nothing is sent yet.

        Args:
            reviewer: Who scores candidates.
            settings: The fields that begin with `review`, or end with `reviews_per_...`.
            telemetry: Counts reviews.
        """
        self._reviewer = reviewer
        self._settings = settings
        self._telemetry = telemetry
        self._slots = asyncio.Semaphore(settings.review_concurrency)
        self._unfitted: set[int] = set()
        self.budget = DayBudget(settings.max_reviews_per_day)

    async def close(self) -> None:
        """Close the reviewer's connections."""
        await self._reviewer.close()

    async def reviewed(
        self, engine: Engine, asked: PredictRequest, answer: EngineAnswer, until: float
    ) -> EngineAnswer:
        """Return an answer with reviews of its texts, where they are wanted.

        Args:
            engine: Ranks the candidates.
            asked: The request.
            answer: Its ordinary answer.
            until: When the request has to be answered, by `time.monotonic`.
        """
        wanted = [i for i, each in enumerate(answer.predictions) if self._is_wanted(asked, each)]
        if not wanted:
            return answer
        predictions = list(answer.predictions)
        most = self._settings.max_reviews_per_request
        for i in wanted[most:]:
            predictions[i] = self._failed(predictions[i], "request-limit", time.monotonic())
        rows = wanted[:most]
        found = await self._review_texts(engine, asked, answer, rows, until)
        for i, prediction in zip(rows, found, strict=True):
            predictions[i] = prediction
        return replace(answer, predictions=predictions)

    def _is_wanted(self, asked: PredictRequest, prediction: Prediction) -> bool:
        if asked.review is not None or self._settings.review_when == "asked":
            return bool(asked.review)
        if not asked.can_be_reviewed:
            return False
        if asked.accept not in {None, False}:
            return prediction.abstained_because == "below-threshold"
        best = max((each.probability or 0.0 for each in prediction.labels), default=0.0)
        return self._settings.review_doubt_from <= best <= self._settings.review_doubt_to

    async def _review_texts(
        self,
        engine: Engine,
        asked: PredictRequest,
        answer: EngineAnswer,
        rows: Sequence[int],
        until: float,
    ) -> list[Prediction]:
        started = time.monotonic()
        ordinary = [answer.predictions[i] for i in rows]
        texts = [asked.all_texts[i] for i in rows]
        fitted = answer.model.predictor.review
        if fitted is None or not self._fits(fitted, answer.scorer, asked.k):
            self._warn_once(answer.model.version, fitted)
            return [self._failed(each, "not-fitted", started) for each in ordinary]
        try:
            candidates = await _candidates(engine, asked, answer, texts, fitted, until)
        except (LongtailError, TimeoutError) as error:
            is_late = isinstance(error, DeadlineError | TimeoutError)
            why: ReviewFailure = "time-limit" if is_late else "busy"
            return [self._failed(each, why, started) for each in ordinary]
        catalogue = answer.model.predictor.catalogue
        return await asyncio.gather(
            *(
                self._review_one(text, before, best, fitted, catalogue, asked, until)
                for text, before, best in zip(texts, ordinary, candidates, strict=True)
            )
        )

    def _fits(self, fitted: FittedReview, scorer: str, k: int) -> bool:
        is_own = (fitted.reviewer, fitted.scorer) == (self._reviewer.name, scorer)
        return is_own and k <= fitted.num_candidates

    def _warn_once(self, version: int, fitted: FittedReview | None) -> None:
        known = "none" if fitted is None else fitted.reviewer
        if known != self._reviewer.name and version not in self._unfitted:
            self._unfitted.add(version)
            logger.warning(
                "version %d gets no reviews: the reviewer is %r, and it was fitted to %r; run "
                "'longtail review'", version, self._reviewer.name, known,
            )  # fmt: skip

    async def _review_one(
        self,
        text: str,
        ordinary: Prediction,
        candidates: Prediction,
        fitted: FittedReview,
        catalogue: LabelCatalogue,
        asked: PredictRequest,
        until: float,
    ) -> Prediction:
        """Return the reviewed answer about one text, or the ordinary one with the reason."""
        started = time.monotonic()
        limit_s = min(self._settings.review_timeout_s, until - started - _SPARE_S)
        named = [candidate_text(catalogue[each.index]) for each in candidates.labels]
        try:
            async with asyncio.timeout(limit_s), self._slots:
                attempts = self._settings.review_attempts
                scores = await attempted_scores(self._reviewer, text, named, attempts, self._take)
        except TimeoutError:
            return self._failed(ordinary, "time-limit", started)
        except _SpentError:
            return self._failed(ordinary, "daily-limit", started)
        except Exception as error:  # noqa: BLE001  # whatever it is, there is an answer without it
            told = str(error) if isinstance(error, ReviewError) else type(error).__name__
            logger.warning("a review failed: %s", told)
            return self._failed(ordinary, "reviewer-failed", started)
        self._telemetry.observe_review("reviewed", time.monotonic() - started)
        return _with_scores(candidates, scores, fitted, catalogue, asked, len(ordinary.labels))

    def _take(self) -> None:
        if not self.budget.take():
            raise _SpentError

    def _failed(self, prediction: Prediction, why: ReviewFailure, started: float) -> Prediction:
        self._telemetry.observe_review(why, time.monotonic() - started)
        return replace(prediction, review=Review(why))


def open_desk(settings: Settings, telemetry: Telemetry) -> ReviewDesk | None:
    """Return what gets reviews; None where the settings name no reviewer.

    Raises:
        ConfigError: The settings do not fit each other.
    """
    if settings.reviewer is None:
        return None
    key = read_key(settings.review_key, settings.review_key_file)
    reviewer = open_reviewer(settings.reviewer, settings.review_address, settings.review_model, key)
    return ReviewDesk(reviewer, settings, telemetry)


def check_review(desk: ReviewDesk | None, asked: PredictRequest) -> None:
    """Refuse a request for a review where there is no reviewer.

    Raises:
        RequestError: So it is.
    """
    if asked.review and desk is None:
        raise RequestError(
            "review is true, and this service has no reviewer; leave it out, or let the operator "
            "set LONGTAIL_REVIEWER"
        )


def deadline_of(settings: Settings, asked: PredictRequest) -> float:
    """Return when a request that has just come has to be answered, by `time.monotonic`."""
    most_s = settings.request_timeout_s
    return time.monotonic() + min(asked.timeout_s or most_s, most_s)


async def _candidates(
    engine: Engine,
    asked: PredictRequest,
    answer: EngineAnswer,
    texts: Sequence[str],
    fitted: FittedReview,
    until: float,
) -> Sequence[Prediction]:
    """Return the exact best labels of texts, by the same version, whatever their probability."""
    k = min(fitted.num_candidates, len(answer.model.predictor.catalogue))
    changes = {"k": k, "threshold": None, "version": answer.model.version}
    timeout_s = max(0.001, until - time.monotonic() - _SPARE_S)
    found = await engine.predict(Query(texts, asked.model_copy(update=changes), timeout_s))
    return found.predictions


def _with_scores(
    candidates: Prediction,
    scores: Sequence[float],
    fitted: FittedReview,
    catalogue: LabelCatalogue,
    asked: PredictRequest,
    num_labels: int,
) -> Prediction:
    """Return the candidates in their new order, as many as the request wants.

    Args:
        candidates: The exact best ones.
        scores: The reviewer's.
        fitted: How they count.
        catalogue: Of the model.
        asked: With the threshold.
        num_labels: Of the ordinary answer, which the threshold "auto" keeps.
    """
    labels = candidates.labels
    counts = [catalogue[each.index].training_count for each in labels]
    log_odds = fitted.log_odds(
        np.array([each.score for each in labels], dtype=np.float32),
        np.array(scores, dtype=np.float32),
        np.array(counts, dtype=np.int64),
    )
    order = np.argsort(-log_odds, kind="stable")[: asked.k]
    if isinstance(asked.threshold, float):
        order = order[expit(log_odds[order]) >= asked.threshold]
    elif asked.threshold is not None:
        order = order[:num_labels]
    kept = tuple(
        replace(labels[i], score=float(log_odds[i]), probability=float(expit(log_odds[i])))
        for i in order.tolist()
    )
    own = {each.id for each in kept}
    warnings = (
        replace(each, label_ids=tuple(x for x in each.label_ids if x in own))
        for each in candidates.warnings
        if not each.label_ids or own.intersection(each.label_ids)
    )
    is_accepted = any(each.accepted for each in kept)
    has_marks = any(each.accepted is not None for each in labels)
    why_none = candidates.abstained_because or "below-threshold"
    return replace(
        candidates,
        labels=kept,
        exact=False,
        warnings=tuple(warnings),
        abstained_because=why_none if has_marks and not is_accepted else None,
        review=Review(ranks_before=tuple(i + 1 for i in order.tolist())),
    )
