"""`POST /v1/predict`: labels of one text or several."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic_core import to_json
from starlette.responses import Response

from longtail.service.engine.engine import EngineAnswer
from longtail.service.engine.review import check_review, deadline_of
from longtail.service.schemas.predict import PredictRequest, PredictResponse
from longtail.service.web.answering import answer_request, written_off_the_loop
from longtail.service.web.deps import require_known_query, service_of, while_connected
from longtail.service.web.json_body import JSON, JsonBody
from longtail.service.web.problem_handlers import responses
from longtail.service.wire.lines import asked_fields, text_fields

router = APIRouter()

_read_body = JsonBody(PredictRequest)
_REQUEST_SCHEMA = {"$ref": "#/components/schemas/PredictRequest"}


@router.post(
    "/v1/predict",
    tags=["labels"],
    summary="Labels of texts",
    response_model=PredictResponse,
    responses=responses(400, 404, 413, 415, 422, 429, 503, 504),
    openapi_extra={
        "requestBody": {"required": True, "content": {JSON: {"schema": _REQUEST_SCHEMA}}}
    },
)
async def predict(request: Request) -> Response:
    """Return the best labels of one text or several, each with its score.

    The answer names the model version. `probability` is null for scorers that have none. Labels
    have an `explanation` only where `explain` asks for it.
    """
    await require_known_query(request)
    body = await _read_body(request)
    service = service_of(request)
    check_review(service.reviews, body)
    until = deadline_of(service.settings, body)
    answer = await answer_request(request, service, body)
    if service.reviews is not None:
        reviewed = service.reviews.reviewed(service.engine, body, answer, until)
        answer = await while_connected(request, reviewed)
    content = await written_off_the_loop(answer.predictions, lambda: _content(answer, body))
    return Response(content, media_type=JSON)


def _content(answer: EngineAnswer, body: PredictRequest) -> bytes:
    """Return a `PredictResponse` as JSON, one text after the other.

    Writing JSON stops all threads: the 64,000 labels of a largest answer at once take too long.
    """
    model = {"version": answer.model.version, "digest": answer.model.digest}
    head = {"model": model} | asked_fields(body, answer.scorer, answer.predictions[0])
    results = b",".join(to_json(text_fields(each)) for each in answer.predictions)
    return to_json(head)[:-1] + b',"results":[' + results + b"]}"
