"""`POST /v1/predict`: labels of one text or several."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from service.engine.engine import Answer
from service.schemas.base import ModelReference
from service.schemas.predict import PredictRequest, PredictResponse, TextResult
from service.web.answering import answer_request
from service.web.deps import ServiceDep, require_json, require_known_query
from service.web.problem_handlers import responses
from service.wire.lines import text_fields

router = APIRouter()


@router.post(
    "/v1/predict",
    tags=["labels"],
    summary="Labels of texts",
    dependencies=[Depends(require_known_query), Depends(require_json)],
    response_model_exclude_unset=True,
    responses=responses(400, 404, 413, 415, 422, 429, 503, 504),
)
async def predict(body: PredictRequest, request: Request, service: ServiceDep) -> PredictResponse:
    """Return the best labels of one text or several, each with its score.

    The answer names the model version. `probability` is null for scorers that have none. Labels
    have an `explanation` only where `explain` asks for it.
    """
    answer = await answer_request(request, service, body)
    return _predict_response(answer, body.tail_dial)


def _predict_response(answer: Answer, tail_dial: float) -> PredictResponse:
    return PredictResponse(
        model=ModelReference(version=answer.model.version, digest=answer.model.digest),
        scorer=answer.scorer,
        correction=answer.predictions[0].correction,
        tail_dial=tail_dial,
        results=[TextResult(**text_fields(prediction)) for prediction in answer.predictions],
    )
