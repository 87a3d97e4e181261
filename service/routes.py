"""The routes: what the service answers to what."""

from __future__ import annotations

from typing import Annotated, Any

import fastapi
from fastapi import APIRouter, Depends, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from models.bundle import read_manifest
from models.errors import BundleError
from models.manifest import CorrectionName, Manifest
from service.answering import answer_request
from service.batch import MEDIA_TYPE, BatchResponse, BatchSettings
from service.deps import (
    Service,
    ServiceDep,
    require_json,
    require_known_query,
    require_lines,
)
from service.engine import Answer
from service.limits import accepts_gzip, inflater_for
from service.lines import text_fields
from service.manager import Serving
from service.model_metrics import shares_of
from service.problems import responses
from service.schemas import (
    BatchOptions,
    Health,
    ModelList,
    ModelReference,
    ModelSummary,
    PredictRequest,
    PredictResponse,
    Runtime,
    ServiceLimits,
    TextResult,
)
from service.settings import Settings

router = APIRouter()
predict_router = APIRouter()

_LINES = {"type": "string", "description": "JSON objects, one a line"}
BATCH_BODY = {
    "required": True,
    "description": "One `BatchLine` a line",
    "content": {MEDIA_TYPE: {"schema": _LINES}},
}
BATCH_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One `BatchResult` or `BatchError` for each line, and a `BatchEnd`",
        "content": {MEDIA_TYPE: {"schema": _LINES}},
    }
}


@predict_router.post(
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
    """Return the best labels of each line's text, in order, while the lines still come.

    Lines are JSON objects (`BatchLine`); every one that is not blank gets one line back, a
    `BatchResult` or a `BatchError`, with its `id`. The last line is a `BatchEnd`; where it is
    missing, the answer is not whole. What the query says holds for lines that say nothing
    themselves. Body and answer may be gzip (`Content-Encoding`, `Accept-Encoding`). Read answers
    while you send: who does not read is not read from either.
    """
    is_packed = inflater_for(request.headers) is not None
    service.streams.check()
    service.engine.check_room()
    return BatchResponse(
        service.engine,
        service.telemetry,
        service.streams,
        service.self_check.note_failure,
        BatchSettings(
            defaults=options.model_dump(exclude_unset=True),
            max_line_bytes=service.settings.max_body_bytes,
            idle_timeout_s=service.settings.stream_idle_timeout_s,
            is_gzip_in=is_packed,
            is_gzip_out=accepts_gzip(request.headers.get("accept-encoding", "")),
        ),
    )


@router.get(
    "/v1/models",
    tags=["models"],
    summary="Model versions",
    dependencies=[Depends(require_known_query)],
    responses=responses(422),
)
def list_models(service: ServiceDep) -> ModelList:
    """Return every version of the registry: whether it is loaded, what it can do, how well."""
    registry = service.manager.registry
    serving = service.manager.served
    current = registry.current()
    return ModelList(
        models=[
            _model_summary(service, version, version == current, serving)
            for version in registry.versions()
        ],
        problem=service.redeployer.problem,
        limits=_limits(service.settings),
        runtime=_runtime(service, serving),
    )


@router.get("/livez", tags=["operation"], summary="Is the process alive?", responses=responses())
async def livez() -> Health:
    """Answer 200 as long as the process can answer at all, whether or not a model is loaded."""
    return Health(status="alive")


@router.get("/readyz", tags=["operation"], summary="Can it predict?", responses=responses(503))
async def readyz(service: ServiceDep) -> Health:
    """Answer 200 while requests can be answered, and 503 with the reason while they can't be.

    They can be once all models are loaded and have made a first prediction. When requests fail with
    internal errors or run out of time, the service asks itself for the labels of a text of its own,
    and is not ready from when that fails until it is answered again.
    """
    service.check_ready()
    return Health(status="ready")


@router.get(
    "/metrics",
    tags=["operation"],
    summary="Prometheus metrics",
    response_class=Response,
    responses=responses() | {200: {"content": {CONTENT_TYPE_LATEST: {}}}},
)
async def metrics(service: ServiceDep) -> Response:
    """Return counters and histograms in Prometheus' text format; times are in seconds."""
    return Response(service.telemetry.exposition(), media_type=CONTENT_TYPE_LATEST)


def _predict_response(answer: Answer, tail_dial: float) -> PredictResponse:
    return PredictResponse(
        model=ModelReference(version=answer.model.version, digest=answer.model.digest),
        scorer=answer.scorer,
        correction=answer.predictions[0].correction,
        tail_dial=tail_dial,
        results=[TextResult(**text_fields(prediction)) for prediction in answer.predictions],
    )


def _model_summary(
    service: Service, version: int, is_current: bool, serving: Serving | None
) -> ModelSummary:
    registry = service.manager.registry
    state, load_problem = service.redeployer.state_of(version)
    manifest, problem = None, None
    try:
        manifest = read_manifest(registry.folder_of(version))
    except BundleError as error:  # one unreadable version must not hide the others
        problem = str(error)
    return ModelSummary(
        version=version,
        loaded=serving is not None and version in serving.models,
        default=serving is not None and version == serving.default,
        current=is_current,
        published_at=registry.published_at(version),
        digest=manifest.digest if manifest else None,
        label_count=manifest.label_count if manifest else None,
        scorers=list(manifest.scorers) if manifest else [],
        default_scorer=manifest.default_scorer if manifest else None,
        corrections=_corrections(manifest) if manifest else {},
        metrics=manifest.metrics if manifest else {},
        problem=problem,
        state=state,
        traffic_share=shares_of(serving).get(version, 0.0),
        load_problem=load_problem,
    )


def _corrections(manifest: Manifest) -> dict[str, list[CorrectionName]]:
    found: dict[str, list[CorrectionName]] = {scorer: ["none"] for scorer in manifest.scorers}
    own = manifest.linear_correction
    if own is not None and own != "none":
        found["linear"] = [own, "none"]  # the only scorer that is trained with one
    return found


def _limits(settings: Settings) -> ServiceLimits:
    return ServiceLimits(
        max_k=settings.max_k,
        max_texts=settings.max_texts_per_request,
        max_text_characters=settings.max_text_characters,
        max_explained_labels=settings.max_explained_labels,
        max_queue_tokens=settings.max_queue_tokens,
    )


def _runtime(service: Service, serving: Serving | None) -> Runtime:
    predictor = serving.models[serving.default].predictor if serving else None
    libraries = service.compute.libraries
    return Runtime(
        device=predictor.device if predictor else None,
        encoder_precision=predictor.encoder_precision if predictor else None,
        max_batch_tokens=service.settings.max_batch_tokens
        or (predictor.batch_tokens if predictor else None),
        compute_workers=service.engine.num_workers,
        torch_threads=libraries.torch_threads if libraries else None,
        faiss_threads=libraries.faiss_threads if libraries else None,
        tokeniser_threads=libraries.tokeniser_threads if libraries else None,
        torch_version=libraries.torch_version if libraries else None,
        faiss_version=libraries.faiss_version if libraries else None,
    )
