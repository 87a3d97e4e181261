"""The routes of feedback: give it; operators read and delete it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response

from longtail.service.http.deps import ServiceDep, require_known_query
from longtail.service.http.feedback import read_records, store_feedback, writer_of, written
from longtail.service.http.json_body import JsonBody
from longtail.service.http.problem_handlers import responses
from longtail.service.schemas.base import ModelReference
from longtail.service.schemas.feedback import (
    FeedbackDeleted,
    FeedbackReceipt,
    FeedbackReceipts,
    FeedbackRequest,
)
from longtail.service.wire.problems import Kind, KindError

_NOT_FOUND = Kind("feedback-not-found", 404, "There is no such feedback")
_MAX_SEQUENCE = 2**53
_LINES = "application/x-ndjson"

router = APIRouter(tags=["feedback"], dependencies=[Depends(require_known_query)])


@router.post(
    "/v1/feedback",
    summary="Say which labels are right",
    responses=responses(400, 403, 404, 409, 413, 415, 422, 429, 503, 504),
)
async def give_feedback(
    body: Annotated[FeedbackRequest, Depends(JsonBody(FeedbackRequest))],
    request: Request,
    service: ServiceDep,
) -> FeedbackReceipts:
    """Keep which labels of texts were accepted, rejected and added; answer when it is on the disk.

    All entries are stored, or none: an unknown label (422) or an id that is taken (409) refuses
    them all. Off (403) unless the service has a folder for feedback.
    """
    stored = await store_feedback(request, service, body.entries)
    return FeedbackReceipts(
        entries=[
            FeedbackReceipt(
                id=receipt.id,
                status="stored" if receipt.is_new else "known",
                model=ModelReference(version=entry.version, digest=entry.model_digest),
            )
            for entry, receipt in stored
        ],
        keeps_texts=service.settings.feedback_texts,
    )


@router.get(
    "/v1/admin/feedback",
    summary="Read the feedback",
    response_class=Response,
    responses={
        **responses(401, 403, 404, 409, 422, 503),
        200: {"content": {_LINES: {"schema": {"type": "string"}}}},
    },
)
async def read_feedback(
    service: ServiceDep,
    after: Annotated[
        int,
        Query(ge=0, le=_MAX_SEQUENCE, description="The `sequence` after which the page begins."),
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="Entries to return.")] = 100,
) -> Response:
    """Return entries in the order in which they came, as JSON lines.

    Go on with the `sequence` of the last line; a page without lines is the end. A deleted entry
    comes again as its id and `deleted_at`.
    """
    records = await run_in_threadpool(read_records, service, after, limit)
    content = "".join(f"{record.to_line()}\n" for record in records)
    return Response(content, media_type=_LINES)


@router.delete(
    "/v1/admin/feedback",
    summary="Delete feedback",
    description="Erase all but the id of an entry from the store; the id stays taken. Copies that "
    "were made before, such as exports and backups, are not reached.",
    responses=responses(401, 403, 404, 409, 422, 429, 503, 504),
)
async def delete_feedback(
    service: ServiceDep,
    id: Annotated[  # noqa: A002  # the parameter's name
        str, Query(min_length=1, max_length=200, description="Of the entry.")
    ],
) -> FeedbackDeleted:
    """Erase an entry."""
    if not await written(service, writer_of(service).delete(id)):
        raise KindError(_NOT_FOUND, f"There is no feedback with the id {id[:100]!r}")
    return FeedbackDeleted(id=id)
