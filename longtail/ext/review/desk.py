"""An outside opinion on the best labels of a text: who gets one, within which bounds.

The ordinary answer comes first. Its text, with its exact best n labels, then goes to the reviewer,
by the event loop or a thread of the reviewer's own, never by a compute thread. Whatever fails, the
ordinary answer is given, and says why.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter as Tally
from collections.abc import Awaitable
from dataclasses import replace

import numpy as np
from jaxtyping import Float64
from prometheus_client import CollectorRegistry, Counter, Histogram
from scipy.special import expit

from longtail.ext.review.reviewer import (
    PassingReviewError,
    ReviewError,
    attempted_scores,
    candidate_text,
    open_reviewer,
)
from longtail.ext.review.settings import ReviewSettings
from longtail.models.errors import LongtailError, RequestError
from longtail.models.fitted.review import REVIEW, FittedReview
from longtail.models.results import Prediction, ReviewFailure
from longtail.service.engine.engine import Engine, EngineAnswer
from longtail.service.engine.queries import Query
from longtail.service.errors import DeadlineError
from longtail.service.schemas.predict import PredictRequest
from longtail.service.telemetry.metrics import SECONDS

logger = logging.getLogger(__name__)

_DAY_S = 86_400
_MOST_FAILURES = 3
"""Reviews in a row without an answer in time, before the reviewer is left alone for a while."""
_PAUSE_S = 30.0
_SPARE_S = 0.01
"""Kept of the time of a request to write its answer."""


class UnreviewedError(Exception):
    """There is no review; the argument is the `ReviewFailure`."""


class ReviewMetrics:
    """What became of reviews, as Prometheus metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reviews = Counter(
            "longtail_reviews",
            "Texts that were to be reviewed, by what became of it.",
            ("outcome",),
            registry=registry,
        )
        self._seconds = Histogram(
            "longtail_review_duration_seconds",
            "From the candidates of a text to the end of its review, waiting included.",
            buckets=SECONDS,
            registry=registry,
        )

    def observe(self, outcome: str, seconds: float) -> None:
        """Count one review: `reviewed`, or one of `ReviewFailure`."""
        self._reviews.labels(outcome).inc()
        self._seconds.observe(seconds)


class Reviews:
    """The reviews of a service, which may have no reviewer (see `Reviser`).

    Attributes:
        desk: Gets them; None: there is no reviewer.
    """

    def __init__(self, settings: ReviewSettings, registry: CollectorRegistry) -> None:
        """Open the reviewer of the settings, if any, or raise ConfigError; nothing is sent yet."""
        self._metrics = ReviewMetrics(registry)
        self.desk = ReviewDesk(settings, self._metrics) if settings.reviewer else None

    def check(self, asked: PredictRequest) -> None:
        """Refuse a request for a review where there is no reviewer, by RequestError."""
        if asked.review and self.desk is None:
            raise RequestError(
                "review is true, and this service has no reviewer; leave it out, or let the "
                "operator set LONGTAIL_REVIEWER"
            )

    def revised(
        self, engine: Engine, asked: PredictRequest, answer: EngineAnswer, until: float
    ) -> Awaitable[EngineAnswer] | None:
        """Return the reviewed answer (see `ReviewDesk.reviewed`); None: there is no reviewer."""
        return None if self.desk is None else self.desk.reviewed(engine, asked, answer, until)

    async def close(self) -> None:
        """Close the reviewer's connections."""
        if self.desk is not None:
            await self.desk.close()


class ReviewDesk:
    """Gets reviews of answers, within the bounds of the settings; belongs to one event loop."""

    def __init__(self, settings: ReviewSettings, metrics: ReviewMetrics) -> None:
        """Open the reviewer of the settings, or raise ConfigError; nothing is sent yet."""
        key = settings.review_key, settings.review_key_file
        named = settings.reviewer or "", settings.review_address, settings.review_model
        self._reviewer = open_reviewer(*named, *key)
        self._settings = settings
        self._metrics = metrics
        self._slots = asyncio.Semaphore(settings.review_concurrency)
        self._unfitted: set[int] = set()
        self._failures, self._paused_until = 0, 0.0
        self._attempts = Tally[int]()
        """By day since 1970 (UTC)."""

    async def close(self) -> None:
        """Close the reviewer's connections."""
        await self._reviewer.close()

    async def reviewed(
        self, engine: Engine, asked: PredictRequest, answer: EngineAnswer, until: float
    ) -> EngineAnswer:
        """Return an answer with reviews of its texts, where they are wanted.

        The request has to be answered at the time `until`, by `time.monotonic`.
        """
        is_wanted = [self._is_wanted(asked, each) for each in answer.predictions]
        most = self._settings.max_reviews_per_request

        async def outcome(row: int) -> Prediction:
            ordinary, started, fate = answer.predictions[row], time.monotonic(), "reviewed"
            if not is_wanted[row]:
                return ordinary
            try:
                if sum(is_wanted[:row]) >= most:
                    raise UnreviewedError("request-limit")
                prediction = await self._review(engine, asked, answer, row, until)
            except Exception as error:  # noqa: BLE001  # there is an answer without it
                fate = why = _reason(error)
                prediction = replace(ordinary, reviewed=False, review_failed=why)
            self._metrics.observe(fate, time.monotonic() - started)
            return prediction

        predictions = await asyncio.gather(*map(outcome, range(len(is_wanted))))
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

    async def _review(
        self, engine: Engine, asked: PredictRequest, answer: EngineAnswer, row: int, until: float
    ) -> Prediction:
        fitted, settings = self._fitted(answer, asked), self._settings
        self._check_paused()
        predictor = answer.model.predictor
        text, catalogue = asked.all_texts[row], predictor.catalogue
        k = min(fitted.num_candidates, len(catalogue))
        changes = {"k": k, "threshold": None, "version": answer.model.version}
        left_s = max(0.001, until - time.monotonic() - _SPARE_S)
        query = Query([text], asked.model_copy(update=changes), left_s)
        (candidates,) = (await engine.predict(query)).predictions
        rows = [each.index for each in candidates.labels]
        keywords = self._reviewer.reads_keywords
        told = [candidate_text(catalogue[i], with_keywords=keywords) for i in rows]
        limit_s = min(settings.review_timeout_s, until - time.monotonic() - _SPARE_S)
        bounds = settings.review_attempts, self._count_attempt
        began = math.inf
        try:
            async with asyncio.timeout(limit_s), self._slots:
                began = time.monotonic()
                cleaned = predictor.cleaned(text)
                scores = await attempted_scores(self._reviewer, cleaned, told, *bounds)
        except (TimeoutError, PassingReviewError) as error:
            waited_s = time.monotonic() - began  # a client that is in a hurry proves nothing
            if isinstance(error, PassingReviewError) or waited_s > settings.review_timeout_s / 2:
                self._note_failure()
            raise
        self._failures = 0
        log_odds = fitted.log_odds(
            np.array([each.score for each in candidates.labels], dtype=np.float32),
            np.array(scores, dtype=np.float32),
            catalogue.training_counts[rows],
        )
        return _reordered(candidates, log_odds, asked, len(answer.predictions[row].labels))

    def _check_paused(self) -> None:
        """Refuse while the reviewer is left alone; after each pause one review tries it for all."""
        if self._failures >= _MOST_FAILURES:
            if time.monotonic() < self._paused_until:
                raise UnreviewedError("reviewer-paused")
            self._paused_until = time.monotonic() + _PAUSE_S

    def _note_failure(self) -> None:
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            self._paused_until = time.monotonic() + _PAUSE_S
            logger.error(
                "the reviewer gave no answer to %d reviews in a row; there are none for %.0f s",
                self._failures, _PAUSE_S,
            )  # fmt: skip

    def _fitted(self, answer: EngineAnswer, asked: PredictRequest) -> FittedReview:
        """Return how the reviewer's scores count for an answer, if somebody fitted that."""
        fitted, version = REVIEW.of(answer.model.predictor.parts), answer.model.version
        known = "none" if fitted is None else fitted.reviewer
        if known != self._reviewer.name and version not in self._unfitted:
            self._unfitted.add(version)
            logger.warning(
                "version %d gets no reviews: the reviewer is %r, and it was fitted to %r; run "
                "'longtail review'", version, self._reviewer.name, known,
            )  # fmt: skip
        own = (self._reviewer.name, answer.scorer)
        if fitted is None or (known, fitted.scorer) != own or asked.k > fitted.num_candidates:
            raise UnreviewedError("not-fitted")
        return fitted

    def _count_attempt(self) -> None:
        day = int(time.time() // _DAY_S)
        self._attempts[day] += 1
        if self._attempts[day] > self._settings.max_reviews_per_day:
            raise UnreviewedError("daily-limit")


def _reason(error: Exception) -> ReviewFailure:
    why: ReviewFailure = "busy"
    if isinstance(error, UnreviewedError):
        why = error.args[0]
    elif isinstance(error, TimeoutError | DeadlineError):
        why = "time-limit"
    elif isinstance(error, ReviewError) or not isinstance(error, LongtailError):
        told = str(error) if isinstance(error, ReviewError) else type(error).__name__
        logger.warning("a review failed: %s", told)
        why = "reviewer-failed"
    return why


def _reordered(
    candidates: Prediction,
    log_odds: Float64[np.ndarray, candidate],
    asked: PredictRequest,
    num_labels: int,
) -> Prediction:
    """Return the candidates in the order after the review, as many as the request wants.

    The threshold "auto" keeps the number of labels of the ordinary answer.
    """
    labels, shares = candidates.labels, expit(log_odds)
    order = np.argsort(-log_odds, kind="stable")[: asked.k]
    if isinstance(asked.threshold, float):
        order = order[shares[order] >= asked.threshold]
    elif asked.threshold is not None:
        order = order[:num_labels]
    kept = tuple(
        replace(
            labels[i], score=float(log_odds[i]), probability=float(shares[i]), rank_before=i + 1
        )
        for i in order.tolist()
    )
    kept_ids = {each.id for each in kept}
    warnings = (
        replace(each, label_ids=tuple(x for x in each.label_ids if x in kept_ids))
        for each in candidates.warnings
        if not each.label_ids or kept_ids.intersection(each.label_ids)
    )
    is_marked = any(each.accepted is not None for each in labels)
    abstains = is_marked and not any(each.accepted for each in kept)
    return replace(
        candidates,
        labels=kept,
        exact=False,
        warnings=tuple(warnings),
        reviewed=True,
        abstained=abstains if is_marked else None,
        abstained_because=(candidates.abstained_because or "below-threshold") if abstains else None,
    )
