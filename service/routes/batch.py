"""`POST /v1/batch`: a stream of texts in, a stream of labels out."""

from __future__ import annotations

from typing import Annotated, Any

import fastapi
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from longtail.service.routes.batch_stream import MEDIA_TYPE, BatchResponse, BatchSettings
from longtail.service.schemas.batch import BatchOptions
from longtail.service.web.deps import ServiceDep, require_lines
from longtail.service.web.encodings import accepts_gzip, inflater_for
from longtail.service.web.problem_handlers import responses

router = APIRouter()

_LINES = {"type": "string", "description": "One JSON object per line"}
BATCH_BODY = {
    "required": True,
    "description": "One `BatchLine` per line",
    "content": {MEDIA_TYPE: {"schema": _LINES}},
}
BATCH_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One `BatchResult` or `BatchError` for each line, and a `BatchEnd`",
        "content": {MEDIA_TYPE: {"schema": _LINES}},
    }
}


@router.post(
    "/v1/batch",
    tags=["labels"],
    summary="Labels of a stream of texts",
    dependencies=[Depends(require_lines)],
    response_class=Response,
    responses=responses(415, 422, 429, 503) | BATCH_RESPONSES,
    openapi_extra={"requestBody": BATCH_BODY},
)
async def batch(
    request: Request, service: ServiceDep, options: Annotated[BatchOptions, fastapi.Query()]
) -> BatchResponse:
    """Return the best labels of each line's text, in order, while lines are still being sent.

    Lines are JSON objects (`BatchLine`); each one that is not blank is answered by one line, a
    `BatchResult` or a `BatchError`, with its `id`. The last line is a `BatchEnd`; where it is
    missing, the answer is incomplete. Query parameters are the defaults for every line. Body and
    answer may be gzip (`Content-Encoding`, `Accept-Encoding`). Read answers while you send: the
    service stops reading from a client that does not read its answers.
    """
    is_packed = inflater_for(request.headers.get("content-encoding", "identity")) is not None
    service.streams.check()
    service.engine.check_room()
    return BatchResponse(
        service,
        BatchSettings(
            defaults=options.model_dump(exclude_unset=True),
            max_line_bytes=service.settings.max_body_bytes,
            idle_timeout_s=service.settings.stream_idle_timeout_s,
            stop_timeout_s=service.settings.shutdown_timeout_s / 4,
            is_gzip_in=is_packed,
            is_gzip_out=accepts_gzip(request.headers.get("accept-encoding", "")),
        ),
    )
