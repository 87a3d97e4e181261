"""`GET /v1/models`: versions, limits, and how the service computes."""

from __future__ import annotations

from dataclasses import asdict, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from longtail.models.bundle.bundle import read_manifest
from longtail.models.bundle.manifest import MANIFEST_NAME, Manifest
from longtail.models.bundle.registry import EMPTY_STATE, RegistryState
from longtail.models.errors import BundleCorruptError, BundleError
from longtail.models.fitted.registry import listed_fields
from longtail.models.names import CorrectionName
from longtail.models.options import AIM_NAMES, PRECISION, AimName
from longtail.service.engine.queries import MAX_EXPLAINED_LABELS
from longtail.service.http.deps import Service, ServiceDep, require_known_query
from longtail.service.http.feedback import MAX_ENTRIES
from longtail.service.http.problem_handlers import responses
from longtail.service.process.compute_threads import ComputeLibraries
from longtail.service.schemas.models import (
    FeedbackState,
    IndexState,
    ModelList,
    ModelSummary,
    Runtime,
    ServiceLimits,
)
from longtail.service.settings import Settings
from longtail.service.versions.serving import ServedModel, Serving

router = APIRouter()


@router.get(
    "/v1/models",
    tags=["models"],
    summary="Model versions",
    dependencies=[Depends(require_known_query)],
    response_model=ModelList,
    responses=responses(422),
)
def list_models(service: ServiceDep) -> Response:
    """Return every version of the registry: whether it is loaded, what it can do, how well."""
    # Written here, on another thread than the event loop: the answer grows with the registry.
    return Response(_model_list(service).model_dump_json(), media_type="application/json")


def _model_list(service: Service) -> ModelList:
    registry = service.manager.registry
    serving = service.manager.served
    problem = service.redeployer.problem
    try:
        state = registry.state()
    except BundleCorruptError as error:  # it must not hide what is served
        state, problem = EMPTY_STATE, str(error)
    loaded = serving.models if serving else {}
    return ModelList(
        models=[
            _model_summary(service, version, state, serving)
            for version in sorted({*registry.versions(), *loaded})
        ],
        problem=problem,
        limits=_limits(service.settings),
        runtime=_runtime(service, serving),
        feedback=FeedbackState(
            enabled=service.feedback is not None,
            keeps_texts=service.settings.feedback_texts,
            max_entries=MAX_ENTRIES,
        ),
    )


def _model_summary(
    service: Service, version: int, registry_state: RegistryState, serving: Serving | None
) -> ModelSummary:
    registry = service.manager.registry
    state, load_problem = service.redeployer.state_of(version)
    manifest, problem = None, None
    try:
        manifest = _manifest_of(registry.folder_of(version))
    except BundleError as error:  # one unreadable version must not hide the others
        problem = str(error)
    model = serving.models.get(version) if serving is not None else None
    return ModelSummary(
        **_fields_of(manifest, model),
        version=version,
        loaded=model is not None,
        default=serving is not None and version == serving.default,
        current=version == registry_state.current,
        published_at=registry_state.published_at.get(str(version)),
        corrections=_corrections(manifest) if manifest else {},
        aims=_aims(manifest) if manifest else {},
        waiting_scorers=list(model.predictor.left_out) if model else [],
        example=model.example if model else None,
        languages=list(model.predictor.catalogue.languages) if model else [],
        has_hierarchy=model is not None and model.predictor.catalogue.has_hierarchy,
        problem=problem,
        state=state,
        traffic_share=serving.shares.get(version, 0.0) if serving else 0.0,
        load_problem=load_problem,
    )


_SHARED = ModelSummary.model_fields.keys() & {field.name for field in fields(Manifest)}
"""Fields that the answer has of the manifest; without one they are null, or empty."""
_NO_LIBRARIES: dict[str, Any] = dict.fromkeys(field.name for field in fields(ComputeLibraries))
_UNKNOWN: dict[str, Any] = dict.fromkeys(_SHARED) | {"scorers": [], "thresholds": {}, "metrics": {}}


def _fields_of(manifest: Manifest | None, model: ServedModel | None) -> dict[str, Any]:
    """Return what the manifest of a version says, and what its fitted parts do."""
    said = {x: getattr(manifest, x) for x in _SHARED} if manifest else _UNKNOWN
    return said | listed_fields(manifest, model.predictor.parts if model else None)


def _manifest_of(folder: Path) -> Manifest:
    """Return the manifest of a version; it is read again where its file has changed."""
    try:
        found = (folder / MANIFEST_NAME).stat()
    except OSError:
        return read_manifest(folder)
    return _read_once(folder, (found.st_ino, found.st_size, found.st_mtime_ns))


@lru_cache(maxsize=256)
def _read_once(folder: Path, _stamp: tuple[int, int, int]) -> Manifest:
    return read_manifest(folder)


def _corrections(manifest: Manifest) -> dict[str, list[CorrectionName]]:
    corrections: dict[str, list[CorrectionName]] = {scorer: ["none"] for scorer in manifest.scorers}
    trained_with = manifest.linear_correction
    if trained_with is not None and trained_with != "none":
        corrections["linear"] = [trained_with, "none"]  # the only scorer that is trained with one
    return corrections


def _aims(manifest: Manifest) -> dict[str, list[AimName]]:
    weighed = manifest.calibrations
    return {x: [*AIM_NAMES] if x in weighed else [PRECISION] for x in manifest.scorers}


def _limits(settings: Settings) -> ServiceLimits:
    return ServiceLimits(
        max_k=settings.max_k,
        max_texts=settings.max_texts_per_request,
        max_text_characters=settings.max_text_characters,
        max_explained_labels=MAX_EXPLAINED_LABELS,
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
        **(asdict(libraries) if libraries else _NO_LIBRARIES),
        indexes={
            name: IndexState(index=choice.index, speedup=choice.speedup)
            for name, choice in (predictor.scorers.index_choices if predictor else {}).items()
        },
    )
