"""One way from a valid request to its answer, whatever protocol the request came in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from fastapi import Request

from longtail.models.results import Prediction, ScoredLabel
from longtail.service.engine.engine import EngineAnswer
from longtail.service.engine.queries import Query
from longtail.service.schemas.predict import PredictRequest
from longtail.service.web.deps import Service, while_connected
from longtail.service.web.json_body import off_the_loop
from longtail.service.web.scopes import add_log_fields

Written = TypeVar("Written")
_LABEL_BYTES = 128
"""Of a label in an answer, about."""


async def written_off_the_loop(
    predictions: Sequence[Prediction], write: Callable[[], Written]
) -> Written:
    """Return what writing an answer gives; one of many labels is written on another thread."""
    num_labels = sum(len(each.labels) for each in predictions)
    return await off_the_loop(_LABEL_BYTES * num_labels, write)


async def answer_request(request: Request, service: Service, body: PredictRequest) -> EngineAnswer:
    """Return the labels of a request's texts; admits, counts and logs it.

    Args:
        request: Its body has been read; when its client hangs up, the work is dropped.
        service: Who answers.
        body: What is asked.

    Raises:
        LongtailError: As `Engine.predict` does.
        HTTPException: With status 499, when the client is gone.
    """
    add_log_fields(request.scope, texts=len(body.all_texts), k=body.k)
    query = Query(body.all_texts, body, body.timeout_s)
    answer = await while_connected(request, service.engine.predict(query))
    service.telemetry.observe_predict(answer.scorer, answer.model.version, answer.seconds.compute)
    service.drift.observe(query, answer)
    if service.tracing is not None:
        service.tracing.note_phases(answer.seconds.phases)
    add_log_fields(
        request.scope,
        version=answer.model.version,
        scorer=answer.scorer,
        queue_ms=round(answer.seconds.queue * 1000, 1),
        compute_ms=round(answer.seconds.compute * 1000, 1),
    )
    return answer


def score_of(label: ScoredLabel) -> float:
    """Return the score of a label from 0 to 1, for protocols that have one number.

    The label's probability; else the logistic sigmoid of its score, which keeps the order.
    """
    if label.probability is not None:
        return label.probability
    return 0.5 * (1 + math.tanh(label.score / 2))
