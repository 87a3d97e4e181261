"""The route of the queue: which document to label next."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Annotated

from fastapi import APIRouter, Depends

from longtail.service.errors import DeadlineError
from longtail.service.feedback.queue import LabelQueue, Turn
from longtail.service.schemas.queue import DocumentToLabel, NextDocument, NextRequest
from longtail.service.web.deps import Service, ServiceDep, require_known_query
from longtail.service.web.json_body import JsonBody
from longtail.service.web.problem_handlers import responses
from longtail.service.wire.problems import Kind, KindError

_OFF = Kind("queue-off", 403, "There is no queue")

router = APIRouter(tags=["feedback"], dependencies=[Depends(require_known_query)])


@router.post(
    "/v1/queue/next",
    summary="Get a document to label",
    responses=responses(400, 403, 413, 415, 422, 429, 503, 504),
)
async def give_next(
    body: Annotated[NextRequest, Depends(JsonBody(NextRequest))], service: ServiceDep
) -> NextDocument:
    """Return the document to label next: the first that is not done and that nobody else has.

    It is done when feedback was given about it, and nobody's again when its lease ends. Off (403)
    unless the service has a queue.
    """
    queue = _queue_of(service)
    turn = await _answer_of(service, queue.next(body.annotator, body.skip))
    found = turn.document
    document = None if found is None else DocumentToLabel(document_id=found.id, text=found.text)
    return NextDocument(
        document=document,
        lease_s=queue.lease_s,
        total=turn.total,
        done=turn.done,
        taken=turn.taken,
    )


async def _answer_of(service: Service, turn: Future[Turn]) -> Turn:
    """Return what the queue answers.

    Raises:
        DeadlineError: The store of feedback does not answer in time.
    """
    try:
        async with asyncio.timeout(service.settings.request_timeout_s):
            return await asyncio.wrap_future(turn)
    except TimeoutError:
        raise DeadlineError("the queue did not answer in time; ask again") from None


def _queue_of(service: Service) -> LabelQueue:
    """Return the queue.

    Raises:
        KindError: There is none.
    """
    if service.queue is None:
        raise KindError(_OFF, "This service has no queue; set LONGTAIL_QUEUE to a file")
    return service.queue
