"""Label Studio's protocol for machine-learning backends, so that its annotators begin with labels.

Label Studio connects to `/label-studio`, asks for predictions, and sends what people made of them,
which is kept as feedback. `<Taxonomy apiUrl="...">` asks for the labels, a level at a time.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from longtail.ext.label_studio.labels import ControlLabels, labels_of, taxonomy_items
from longtail.ext.label_studio.schemas import (
    AnnotationEvent,
    AnnotationsEvent,
    DeletionEvent,
    ModelVersion,
    OtherEvent,
    PredictedRegion,
    PredictedTask,
    PredictedTasks,
    SetupRequest,
    StudioAnnotation,
    StudioHealth,
    StudioProject,
    StudioTask,
    TasksRequest,
    TaxonomyItem,
    WebhookReceipt,
)
from longtail.models.errors import RequestError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.options import Version
from longtail.models.results import Prediction, ScoredLabel
from longtail.service.engine.queries import Query as EngineQuery
from longtail.service.http.deps import Service, ServiceDep, require_known_query
from longtail.service.http.feedback import replace_feedback, writer_of
from longtail.service.http.json_body import (
    JsonBody,
    answer_request,
    checked,
    off_the_loop,
    score_of,
)
from longtail.service.http.problem_handlers import responses
from longtail.service.schemas.base import schemas_of
from longtail.service.schemas.feedback import FeedbackEntry, NewLabel
from longtail.service.schemas.requests import PredictRequest
from longtail.service.versions.serving import ServedModel

logger = logging.getLogger(__name__)

_EVENTS: dict[str, type[AnnotationEvent | AnnotationsEvent | DeletionEvent]] = {
    "ANNOTATION_CREATED": AnnotationEvent,
    "ANNOTATION_UPDATED": AnnotationEvent,
    "ANNOTATIONS_CREATED": AnnotationsEvent,
    "ANNOTATIONS_DELETED": DeletionEvent,
}
_VERSION = re.compile(r"longtail-([1-9][0-9]{0,17})")
_DELETED = "deleted"
"""Ends the id of the last entry of a series; sorts behind all times."""

router = APIRouter(prefix="/label-studio", tags=["Label Studio"])


@router.get("/health", summary="Label Studio: can it predict?", responses=responses(503))
async def show_health(service: ServiceDep) -> StudioHealth:
    """Answer 200 once all models are loaded, and 503 before."""
    service.check_ready()
    return StudioHealth()


@router.post(
    "/setup",
    summary="Label Studio: begin with a project",
    responses=responses(400, 413, 415, 422, 429, 503, 504),
)
async def set_up(
    body: Annotated[SetupRequest, Depends(JsonBody(SetupRequest))], service: ServiceDep
) -> ModelVersion:
    """Check that a project can be predicted, its labels and how it asks; nothing of it is kept.

    Errors are logged, as Label Studio does not show them.
    """
    model = _default_model(service)
    try:
        labels = await run_in_threadpool(labels_of, body.schema_, model)
        asked = checked(PredictRequest, text="any", **_options_of(labels, model, service))
        await service.engine.predict(EngineQuery(asked.all_texts, asked))
    except (RequestError, RequestValidationError) as error:
        logger.warning("a project of Label Studio can't be predicted: %s", error)
        raise
    return ModelVersion(model_version=_version_name(model.version))


@router.post(
    "/predict",
    summary="Label Studio: labels of tasks",
    responses=responses(400, 404, 413, 415, 422, 429, 503, 504),
)
async def predict(
    body: Annotated[TasksRequest, Depends(JsonBody(TasksRequest))],
    request: Request,
    service: ServiceDep,
) -> PredictedTasks:
    """Return the labels of each task, as choices of the project's control; none of blank texts.

    Attributes of the control say what to predict: `model_k` (labels a task, 5 where absent; all
    where the model has fewer), `model_score_threshold` (least probability) and `model_scorer`.
    """
    model = _default_model(service)
    labels = await run_in_threadpool(labels_of, body.label_config, model)
    limits = service.settings
    texts = await run_in_threadpool(
        labels.control.texts_of,
        [task.data for task in body.tasks],
        limits.max_text_characters,
        limits.max_body_bytes,
    )
    return await _predicted(request, service, labels, model, texts)


@router.post(
    "/webhook",
    summary="Label Studio: what people made of predictions",
    responses=responses(400, 403, 404, 413, 415, 422, 429, 503, 504),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/StudioEvent"}}
            },
        }
    },
)
async def take_event(request: Request, service: ServiceDep) -> WebhookReceipt:
    """Keep an annotation as feedback; a changed one replaces its earlier state.

    Of a deleted one, and of a task that is skipped, nothing is left. Of other events nothing is
    done.
    """
    kind = _EVENTS.get((await JsonBody(OtherEvent)(request)).action)
    if kind is None:
        return WebhookReceipt(stored=0)
    writer_of(service)
    event = await JsonBody(kind)(request)
    project, stored = event.project, 0
    if isinstance(event, DeletionEvent):
        for deleted in event.annotations:
            series = _series_of(project, deleted.id)
            await replace_feedback(request, service, series, series + _DELETED, None)
        return WebhookReceipt(stored=0)
    for annotation, task in _pairs(event):
        entry = await _entry_of(request, service, annotation, task, project)
        series = _series_of(project, annotation.id)
        is_new = await replace_feedback(
            request, service, series, series + annotation.updated_at, entry
        )
        stored += is_new and entry is not None
    return WebhookReceipt(stored=stored)


@router.get(
    "/labels",
    summary="Label Studio: labels to choose from",
    dependencies=[Depends(require_known_query)],
    responses=responses(404, 422, 503),
    response_model_exclude_none=True,
)
async def list_items(
    service: ServiceDep,
    path: Annotated[
        list[str],
        Query(max_length=100, description="From the first level to a label or heading: what "
              "stands right below it. Absent: the first level."),
    ] = [],  # noqa: B006  # FastAPI copies it
    query: Annotated[
        str,
        Query(max_length=1000, description="Words as in `/v1/labels`: the labels found instead of "
              "the first level, the best first, 500 at most. Label Studio puts in a field of the "
              "task where `apiUrl` has `$field`."),
    ] = "",
    version: Annotated[
        Version | None, Query(description="Model version, a number or `current`.")
    ] = None,
) -> list[TaxonomyItem]:  # fmt: skip
    """Return labels as `<Taxonomy apiUrl="...">` asks for them, in the order of their names.

    Labels are below their broader ones; more than 500 at a level are divided by letters.
    """
    model = service.manager.get(version)
    return await run_in_threadpool(taxonomy_items, model, path, query)


def event_schemas() -> dict[str, Any]:
    """Return the OpenAPI schemas of events, `StudioEvent` first of all."""
    kinds: tuple[type[BaseModel], ...] = (*dict.fromkeys(_EVENTS.values()), OtherEvent)
    names = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in kinds]
    about = "What happened in a project; `action` says which of these it is."
    return {"StudioEvent": {"description": about, "anyOf": names}, **schemas_of(*kinds)}


def _default_model(service: Service) -> ServedModel:
    """Return the default model, never one that shares its traffic: its labels may be others."""
    serving = service.manager.serving()
    return serving.models[serving.default]


async def _predicted(
    request: Request,
    service: Service,
    labels: ControlLabels,
    model: ServedModel,
    texts: Sequence[str],
) -> PredictedTasks:
    """Return the labels of each text, asked for as many at a time as a request may have."""
    asked = [text for text in texts if text.strip()]
    options = _options_of(labels, model, service)
    found: list[Prediction] = []
    size = service.settings.max_texts_per_request
    most = size * service.settings.max_k
    if len(asked) * options["k"] > most:
        raise RequestError(
            f"{len(asked)} tasks with model_k={options['k']} ask for more than {most} labels; "
            "send fewer tasks at a time"
        )
    for first in range(0, len(asked), size):
        some = asked[first : first + size]
        check = partial(checked, PredictRequest, texts=some, **options)
        body = await off_the_loop(sum(map(len, some)), check)
        found += (await answer_request(request, service, body)).predictions
    predictions = iter(found)

    def write() -> PredictedTasks:
        return PredictedTasks(
            results=[
                _predicted_task(labels, model, next(predictions).labels if text.strip() else ())
                for text in texts
            ]
        )

    return await run_in_threadpool(write)


def _predicted_task(
    labels: ControlLabels, model: ServedModel, found: Sequence[ScoredLabel]
) -> PredictedTask:
    control = labels.control
    region = PredictedRegion(
        from_name=control.name,
        to_name=control.toname,
        type=control.kind,
        value=labels.value_of(label.index for label in found),
    )
    return PredictedTask(
        result=[region] if found else [],
        score=sum(map(score_of, found)) / max(1, len(found)),
        model_version=_version_name(model.version),
    )


def _options_of(labels: ControlLabels, model: ServedModel, service: Service) -> dict[str, Any]:
    """Return what a control asks for about a text."""
    control, catalogue = labels.control, model.predictor.catalogue
    most, wanted = service.settings.max_k, min(control.num_labels, len(catalogue))
    if wanted > most:
        raise RequestError(
            f"label_config: control {control.name!r} has model_k {control.model_k}; expected "
            f"a number from 1 to {most}"
        )
    options: dict[str, Any] = {
        "k": wanted,
        "threshold": control.model_score_threshold,
        "scorer": control.model_scorer,
        "version": model.version,
    }
    if labels.path_of_row:
        options["include"] = [catalogue[row].id for row in labels.path_of_row]
    return options


def _pairs(
    event: AnnotationEvent | AnnotationsEvent,
) -> list[tuple[StudioAnnotation, StudioTask]]:
    if isinstance(event, AnnotationEvent):
        return [(event.annotation, event.task)]
    tasks = {task.id: task for task in event.task}
    for annotation in event.annotation:
        if annotation.task not in tasks:
            raise RequestError(
                f"annotation {annotation.id} is of task {annotation.task}, which is not among the "
                "tasks of the event; send it too"
            )
    return [(annotation, tasks[annotation.task]) for annotation in event.annotation]


async def _entry_of(
    request: Request,
    service: Service,
    annotation: StudioAnnotation,
    task: StudioTask,
    project: StudioProject,
) -> FeedbackEntry | None:
    """Return what an annotation says of the labels of the version that predicted, if it is loaded.

    Where Label Studio says only that the annotation began with a prediction, it is made again.
    """
    if annotation.was_cancelled:
        return None
    version, default = _version_of(annotation), _default_model(service)
    model = service.manager.serving().models.get(version or default.version, default)
    labels = await run_in_threadpool(labels_of, project.label_config, model)
    max_characters = service.settings.max_text_characters
    predicted: list[tuple[str, ...]] = []
    if version is not None and annotation.prediction is not None:
        place = f"annotation {annotation.id}: prediction.result"
        predicted = labels.chosen(annotation.prediction.result, place)
    elif annotation.parent_prediction is not None:
        text = labels.control.text_of(task.data, max_characters)
        again = await _predicted(request, service, labels, model, [text])
        predicted = labels.chosen([region.model_dump() for region in again.results[0].result])
    judge = partial(_judged, annotation, task, project, labels, predicted, model, max_characters)
    return await run_in_threadpool(judge)


def _version_name(version: int) -> str:
    """Return how Label Studio knows a model version."""
    return f"longtail-{version}"


def _version_of(annotation: StudioAnnotation) -> int | None:
    """Return the model version of the prediction that Label Studio kept; None if it is not ours."""
    prediction = annotation.prediction
    found = prediction and _VERSION.fullmatch(prediction.model_version or "")
    return int(found[1]) if found else None


def _series_of(project: StudioProject, annotation_id: int) -> str:
    """Return the common beginning of the ids of all entries about an annotation.

    With the time at which its project was made, as installations number their projects alike.
    """
    return f"{_name_of(project)}/annotation-{annotation_id}/"


def _judged(
    annotation: StudioAnnotation,
    task: StudioTask,
    project: StudioProject,
    labels: ControlLabels,
    predicted: Iterable[tuple[str, ...]],
    model: ServedModel,
    max_characters: int,
) -> FeedbackEntry | None:
    """Return what an annotation says of the labels of a text; None where it says nothing.

    Labels that were predicted and chosen are accepted, those predicted alone are rejected, those
    chosen alone are added, or proposed where the model lacks them.
    """
    chosen, proposed = set[int](), list[NewLabel]()
    for path in labels.chosen(annotation.result or [], f"annotation {annotation.id}: result"):
        row = labels.row_of(path)
        if row is not None:
            chosen.add(row)
        elif not labels.is_heading(path):
            proposed.append(checked(NewLabel, name=path[-1]))
    shown = {row for path in predicted if (row := labels.row_of(path)) is not None}
    if not chosen and not proposed and not shown:
        return None
    text = labels.control.text_of(task.data, max_characters)
    catalogue = model.predictor.catalogue
    return checked(
        FeedbackEntry,
        id=_series_of(project, annotation.id) + annotation.updated_at,
        text=text if text.strip() else None,
        document_id=f"{_name_of(project)}/task-{task.id}",
        accepted=_ids(chosen & shown, catalogue),
        rejected=_ids(shown - chosen, catalogue),
        added=_ids(chosen - shown, catalogue),
        proposed=proposed,
        version=model.version,
    )


def _ids(rows: set[int], catalogue: LabelCatalogue) -> list[str]:
    return [catalogue[row].id for row in sorted(rows)]


def _name_of(project: StudioProject) -> str:
    return f"label-studio/{project.id}-{project.created_at}"
