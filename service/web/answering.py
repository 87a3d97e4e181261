"""One way from a valid request to its answer, whatever protocol the request came in."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request

from service.engine.engine import Answer
from service.engine.queries import Query
from service.schemas.base import Options
from service.schemas.predict import PredictRequest
from service.web.deps import Service, while_connected
from service.web.request_state import add_log_fields


async def answer_request(request: Request, service: Service, body: PredictRequest) -> Answer:
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
    query = query_of(body, body.all_texts, body.timeout_s)
    answer = await while_connected(request, service.engine.predict(query))
    service.telemetry.observe_predict(answer.scorer, answer.model.version, answer.seconds.compute)
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


def query_of(asked: Options, texts: Sequence[str], timeout_s: float | None = None) -> Query:
    """Return what a request, or a line of a batch, asks of the engine."""
    return Query(
        texts=texts,
        k=asked.k,
        scorer=asked.scorer,
        threshold=asked.threshold,
        correction=asked.correction,
        tail_dial=asked.tail_dial,
        version=asked.version,
        include=None if asked.include is None else tuple(asked.include),
        exclude=tuple(asked.exclude),
        include_set=asked.include_set,
        exclude_set=asked.exclude_set,
        explain=asked.explain,
        timeout_s=timeout_s,
    )
