"""`/livez`, `/readyz` and `/metrics`."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from longtail.service.http.deps import ServiceDep
from longtail.service.http.problem_handlers import responses
from longtail.service.schemas.models import Health

router = APIRouter()


@router.head("/livez", include_in_schema=False)
@router.get(
    "/livez", tags=["operation"], summary="Is the process alive?", responses=responses(503),
    response_model_exclude_unset=True,
)  # fmt: skip
async def livez(service: ServiceDep) -> Health:
    """Answer 200 while the process is alive, whether or not a model is loaded.

    It is 503 after a CUDA failure that only a new process can recover from.
    """
    service.engine.gpu.check()
    return Health(status="alive")


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", tags=["operation"], summary="Can it predict?", responses=responses(503))
async def readyz(service: ServiceDep) -> Health:
    """Answer 200 while requests can be answered, and 503 with the reason while they can't be.

    The service is ready once all models are loaded and have made a first prediction. When requests
    fail with internal errors or run out of time, it sends itself a request; while that fails, the
    service is not ready. The status is "degraded", with 200, while the registry's `current`
    can't be followed, so that another version answers; `/v1/models` says why.
    """
    service.check_ready()
    serving = service.manager.served
    waiting = list(serving.models[serving.default].predictor.left_out) if serving else []
    status: Literal["degraded", "ready"] = "degraded" if service.redeployer.problem else "ready"
    return Health(status=status, waiting_scorers=waiting)


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
