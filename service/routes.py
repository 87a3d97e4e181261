"""The routes: what the service answers to what."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import RedirectResponse, Response

from models.bundle import read_manifest
from models.errors import BundleError, NotReadyError
from service.deps import Service, ServiceDep, require_json
from service.engine import Answer, Query
from service.manager import Serving
from service.problems import responses
from service.schemas import (
    Health,
    ModelList,
    ModelReference,
    ModelSummary,
    PredictRequest,
    PredictResponse,
    ScoredLabel,
    TextResult,
)
from service.telemetry import add_log_fields

router = APIRouter()


@router.post(
    "/v1/predict",
    tags=["labels"],
    summary="Labels of texts",
    dependencies=[Depends(require_json)],
    responses=responses(400, 404, 413, 415, 422, 429, 503),
)
async def predict(body: PredictRequest, request: Request, service: ServiceDep) -> PredictResponse:
    """Return the best labels of one text or several, each with its score.

    The answer names the model version. `probability` is null for scorers that have none.
    """
    add_log_fields(request.scope, texts=len(body.all_texts), k=body.k)
    answer = await service.engine.predict(
        Query(body.all_texts, body.k, body.scorer, body.threshold, body.version)
    )
    service.telemetry.observe_predict(answer.scorer, answer.compute_s)
    add_log_fields(
        request.scope,
        version=answer.model.version,
        scorer=answer.scorer,
        compute_ms=f"{answer.compute_s * 1000:.1f}",
    )
    return _predict_response(answer)


@router.get("/v1/models", tags=["models"], summary="Model versions", responses=responses())
def list_models(service: ServiceDep) -> ModelList:
    """Return every version of the registry: whether it is loaded, what it can do, how well."""
    registry = service.manager.registry
    try:
        serving = service.manager.serving()
    except NotReadyError:
        serving = None
    current = registry.current()
    return ModelList(
        models=[
            _model_summary(service, version, version == current, serving)
            for version in registry.versions()
        ]
    )


@router.get("/livez", tags=["operation"], summary="Is the process alive?", responses=responses())
async def livez() -> Health:
    """Answer 200 as long as the process can answer at all, whether or not a model is loaded."""
    return Health(status="alive")


@router.get("/readyz", tags=["operation"], summary="Can it predict?", responses=responses(503))
async def readyz(service: ServiceDep) -> Health:
    """Answer 200 once all models are loaded and have made a first prediction, and 503 before."""
    service.manager.serving()
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


@router.get("/", include_in_schema=False)
async def root() -> RedirectResponse:
    """Send people to the documentation of the API."""
    return RedirectResponse("/docs")


def _predict_response(answer: Answer) -> PredictResponse:
    return PredictResponse(
        model=ModelReference(version=answer.model.version, digest=answer.model.digest),
        scorer=answer.scorer,
        results=[
            TextResult(
                labels=[
                    ScoredLabel(
                        id=label.id,
                        name=label.name,
                        score=label.score,
                        probability=label.probability,
                    )
                    for label in prediction.labels
                ],
                num_tokens=prediction.num_tokens,
                truncated=prediction.truncated,
            )
            for prediction in answer.predictions
        ],
    )


def _model_summary(
    service: Service, version: int, is_current: bool, serving: Serving | None
) -> ModelSummary:
    registry = service.manager.registry
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
        metrics=manifest.metrics if manifest else {},
        problem=problem,
    )
