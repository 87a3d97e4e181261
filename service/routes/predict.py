"""`POST /v1/predict`: labels of one text or several; `POST /v1/candidates`: as a JSON schema."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic_core import to_json
from starlette.responses import Response

from longtail.models.errors import RequestError
from longtail.service.engine.engine import EngineAnswer
from longtail.service.http.deps import require_known_query, service_of
from longtail.service.http.json_body import JSON, JsonBody, answer_request, written_off_the_loop
from longtail.service.http.problem_handlers import responses
from longtail.service.schemas.predict import CandidateSchema, PredictResponse, schema_of
from longtail.service.schemas.requests import PredictRequest
from longtail.service.wire.lines import asked_fields, text_json

router = APIRouter()

_read_body = JsonBody(PredictRequest)
_REQUEST_SCHEMA = {"$ref": "#/components/schemas/PredictRequest"}


_BODY = {"requestBody": {"required": True, "content": {JSON: {"schema": _REQUEST_SCHEMA}}}}
_PROBLEMS = responses(400, 404, 413, 415, 422, 429, 503, 504)


@router.post(
    "/v1/predict",
    tags=["labels"],
    summary="Labels of texts",
    response_model=PredictResponse,
    responses=_PROBLEMS,
    openapi_extra=_BODY,
)
async def predict(request: Request) -> Response:
    """Return the best labels of one text or several, each with its score.

    The answer names the model version. `probability` is null for scorers that have none. Labels
    have an `explanation` only where `explain` asks for it.
    """
    body, answer = await _answered(request)
    content = await written_off_the_loop(answer.predictions, lambda: _content(answer, body))
    return Response(content, media_type=JSON)


@router.post(
    "/v1/candidates",
    tags=["labels"],
    summary="Candidates as a JSON schema",
    response_model=CandidateSchema,
    responses=_PROBLEMS,
    openapi_extra=_BODY,
)
async def candidates(request: Request) -> Response:
    """Return the best labels of one text as a schema that lets a language model choose from them.

    The answer is what `response_format.json_schema` takes in the API of OpenAI and of servers that
    are compatible with it. The body is that of `POST /v1/predict`, with one text.
    """
    _, answer = await _answered(request, most_texts=1)
    content = to_json(schema_of(answer.predictions[0], answer.model.version), by_alias=True)
    return Response(content, media_type=JSON)


async def _answered(
    request: Request, most_texts: int | None = None
) -> tuple[PredictRequest, EngineAnswer]:
    """Return what a request asks for, and its answer."""
    await require_known_query(request)
    body = await _read_body(request)
    if most_texts is not None and len(body.all_texts) > most_texts:
        raise RequestError(
            f"got {len(body.all_texts)} texts, expected {most_texts}; send one request for each"
        )
    return body, await answer_request(request, service_of(request), body)


def _content(answer: EngineAnswer, body: PredictRequest) -> bytes:
    """Return a `PredictResponse` as JSON, one text after the other.

    Writing JSON stops all threads: the 64,000 labels of a largest answer at once take too long.
    """
    model = {"version": answer.model.version, "digest": answer.model.digest}
    head = {"model": model} | asked_fields(body, answer.scorer, answer.predictions[0])
    results = b",".join(map(text_json, answer.predictions))
    return to_json(head)[:-1] + b',"results":[' + results + b"]}"
