"""Routes that change the served versions; `longtail.service.http.security` guards them."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Annotated

from fastapi import APIRouter, Depends, Path

from longtail.models.errors import NotReadyError
from longtail.models.options import MAX_VERSION
from longtail.service.http.deps import AuthorDep, ServiceDep, require_known_query
from longtail.service.http.json_body import JsonBody
from longtail.service.http.problem_handlers import responses
from longtail.service.schemas.models import CanaryRequest, ModelChange
from longtail.service.versions.changes import Change
from longtail.service.versions.serving import Canary

router = APIRouter(
    prefix="/v1/admin",
    tags=["admin"],
    dependencies=[Depends(require_known_query)],
    responses=responses(401, 403, 404, 409, 422, 503),
)

VersionPath = Annotated[int, Path(ge=1, le=MAX_VERSION, description="Number of the version.")]


@router.post("/models/{version}/load", summary="Load a version beside the others")
async def load(version: VersionPath, service: ServiceDep) -> ModelChange:
    """Load a version for requests that name it, and return when it is ready.

    It stays loaded until it is unloaded, whatever `current` names.
    """
    return await _done(service.redeployer.load(version))


@router.post("/models/{version}/unload", summary="Unload a version")
async def unload(version: VersionPath, service: ServiceDep) -> ModelChange:
    """Unload a version; requests that it is answering are finished first.

    The default, `current` and the canary are refused with 409.
    """
    return await _done(service.redeployer.unload(version))


@router.post("/models/{version}/activate", summary="Serve a version")
async def activate(version: VersionPath, service: ServiceDep, author: AuthorDep) -> ModelChange:
    """Load a version if necessary, move the registry's `current` to it, and make it the default.

    The version that it replaces is unloaded, unless it was loaded by a request of its own. Where
    the new one can't be loaded, nothing changes and the answer (409) says why.
    """
    return await _done(service.redeployer.activate(version, author))


@router.post("/rollback", summary="Go back to the version before")
async def rollback(service: ServiceDep, author: AuthorDep) -> ModelChange:
    """Activate the version that `current` named before."""
    return await _done(service.redeployer.rollback(author))


@router.put(
    "/canary",
    summary="Try a version on a share of the traffic",
    responses=responses(400, 413, 415),
)
async def put_canary(
    body: Annotated[CanaryRequest, Depends(JsonBody(CanaryRequest))], service: ServiceDep
) -> ModelChange:
    """Answer a share of the requests that name no version with a version other than the default.

    Compare the two by the label `version` of the metrics; then activate it, or end the canary.
    """
    return await _done(service.redeployer.set_canary(Canary(body.version, body.share)))


@router.delete("/canary", summary="End the canary")
async def delete_canary(service: ServiceDep) -> ModelChange:
    """Answer all requests that name no version with the default again."""
    return await _done(service.redeployer.set_canary(None))


async def _done(command: Future[Change]) -> ModelChange:
    """Wait until a command is executed; it goes on if the client does not wait."""
    try:
        change = await asyncio.shield(asyncio.wrap_future(command))
    except asyncio.CancelledError:
        if not command.cancelled():
            raise
        raise NotReadyError(
            "the service is stopping and did not finish this change; ask another instance, and "
            "look first at which version is current"
        ) from None
    serving, canary = change.serving, change.serving.canary
    return ModelChange(
        default=serving.default,
        current=serving.current,
        loaded=sorted(serving.models),
        canary=CanaryRequest(version=canary.version, share=canary.share) if canary else None,
        seconds=round(change.seconds, 3),
    )
