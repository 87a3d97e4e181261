"""Label Studio's protocol for machine-learning backends, so that its annotators begin with labels.

Label Studio connects to `/label-studio`, asks for predictions, and tells what people made of them,
which is kept as feedback. `<Taxonomy apiUrl="...">` asks for the labels, a level at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from longtail.models.errors import RequestError
from longtail.models.results import Prediction
from longtail.service.engine.queries import query_of
from longtail.service.protocols.annif import score_of
from longtail.service.protocols.label_config import NUM_LABELS
from longtail.service.protocols.label_studio_feedback import (
    DELETED,
    judged,
    series_of,
    shown_paths,
    version_name,
    version_of,
)
from longtail.service.protocols.label_studio_labels import (
    ControlLabels,
    browser_of,
    labels_of,
    taxonomy_items,
)
from longtail.service.protocols.label_studio_schemas import (
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
from longtail.service.schemas.base import Version, schemas_of
from longtail.service.schemas.feedback import FeedbackEntry
from longtail.service.schemas.predict import PredictRequest
from longtail.service.versions.serving import LoadedModel
from longtail.service.web.answering import answer_request
from longtail.service.web.deps import Service, ServiceDep, require_known_query
from longtail.service.web.feedback import replace_feedback, writer_of
from longtail.service.web.json_body import JsonBody, checked, off_the_loop
from longtail.service.web.problem_handlers import responses

logger = logging.getLogger(__name__)

_EVENTS: dict[str, type[AnnotationEvent | AnnotationsEvent | DeletionEvent]] = {
    "ANNOTATION_CREATED": AnnotationEvent,
    "ANNOTATION_UPDATED": AnnotationEvent,
    "ANNOTATIONS_CREATED": AnnotationsEvent,
    "ANNOTATIONS_DELETED": DeletionEvent,
}
_ANY_TEXT = "text"

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

    What is wrong is logged, as Label Studio does not show it.
    """
    model = _default_model(service)
    await _check(service, body.schema_, model)
    return ModelVersion(model_version=version_name(model.version))


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
    answers = await _answers(request, service, labels, model, texts)
    return await run_in_threadpool(_predicted, labels, model, answers)


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
    """Keep an annotation as feedback; one that is changed takes the place of what it was before.

    Of a deleted one, and of a task that is skipped, nothing is left. Of other events nothing is
    done.
    """
    kind = _EVENTS.get((await JsonBody(OtherEvent)(request)).action)
    if kind is None:
        return WebhookReceipt(stored=0)
    writer_of(service)
    event = await JsonBody(kind)(request)
    if isinstance(event, DeletionEvent):
        for deleted in event.annotations:
            series = series_of(event.project, deleted.id)
            await replace_feedback(request, service, series, series + DELETED, None)
        return WebhookReceipt(stored=0)
    if isinstance(event, AnnotationEvent):
        pairs = [(event.annotation, event.task)]
    else:
        pairs = _paired(event)
    stored = [
        await _keep(request, service, annotation, task, event.project) for annotation, task in pairs
    ]
    return WebhookReceipt(stored=sum(stored))


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

    Labels stand below their broader ones; more than 500 at a level are divided by letters.
    """
    model = service.manager.get(version)
    return await run_in_threadpool(taxonomy_items, model, path, query)


def event_schemas() -> dict[str, Any]:
    """Return the OpenAPI schemas of events, `StudioEvent` first of all."""
    kinds: tuple[type[BaseModel], ...] = (*dict.fromkeys(_EVENTS.values()), OtherEvent)
    names = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in kinds]
    about = "What happened in a project; `action` says which of these it is."
    return {"StudioEvent": {"description": about, "anyOf": names}, **schemas_of(*kinds)}


def _default_model(service: Service) -> LoadedModel:
    """Return who answers where no version is named; never a canary, whose labels may be others."""
    serving = service.manager.serving()
    return serving.models[serving.default]


async def _check(service: Service, config: str, model: LoadedModel) -> None:
    """Refuse a configuration that a model can't predict, and log why; a text is predicted for it.

    Raises:
        RequestError: It is one.
        RequestValidationError: It is one.
    """
    try:
        labels = await run_in_threadpool(labels_of, config, model)
        options = _options_of(labels, model, service.settings.max_k)
        body = checked(PredictRequest, text=_ANY_TEXT, **options)
        await service.engine.predict(query_of(body, body.all_texts))
    except (RequestError, RequestValidationError) as error:
        logger.warning("a project of Label Studio can't be predicted: %s", error)
        raise


async def _answers(
    request: Request,
    service: Service,
    labels: ControlLabels,
    model: LoadedModel,
    texts: Sequence[str],
) -> list[Prediction | None]:
    """Return the labels of each text, asked for as many at a time as a request may have.

    Raises:
        LongtailError: As `answer_request` does.
        RequestError: The tasks ask for too many labels in all.
        RequestValidationError: A text can't be labelled, or an option is not as it should be.
    """
    asked = [text for text in texts if text.strip()]
    options = _options_of(labels, model, service.settings.max_k)
    found: list[Prediction] = []
    size = service.settings.max_texts_per_request
    most = size * service.settings.max_k
    if len(asked) * options["k"] > most:
        raise RequestError(
            f"{len(asked)} tasks with {NUM_LABELS}={options['k']} ask for more than {most} labels; "
            "send fewer tasks at a time"
        )
    for first in range(0, len(asked), size):
        some = asked[first : first + size]
        check = partial(checked, PredictRequest, texts=some, **options)
        body = await off_the_loop(sum(map(len, some)), check)
        found += (await answer_request(request, service, body)).predictions
    predictions = iter(found)
    return [next(predictions) if text.strip() else None for text in texts]


def _options_of(labels: ControlLabels, model: LoadedModel, max_k: int) -> dict[str, Any]:
    """Return what a control asks for about a text.

    Raises:
        RequestError: It asks for more labels than a request may.
    """
    control, catalogue = labels.control, model.predictor.catalogue
    wanted = min(control.k, control.most or control.k, len(catalogue))
    if wanted > max_k:
        raise RequestError(
            f"label_config: control {control.name!r} has {NUM_LABELS}={str(control.k)!r}; expected "
            f"a number from 1 to {max_k}"
        )
    options: dict[str, Any] = {
        "k": wanted,
        "threshold": control.threshold,
        "scorer": control.scorer,
        "version": model.version,
    }
    if labels.path_of_row is not None:
        options["include"] = [catalogue[row].id for row in labels.path_of_row]
    return options


def _predicted(
    labels: ControlLabels, model: LoadedModel, answers: Sequence[Prediction | None]
) -> PredictedTasks:
    """Return predictions as Label Studio takes them."""
    browser, control = browser_of(model.predictor), labels.control
    results = []
    for answer in answers:
        found = [] if answer is None else answer.labels
        region = PredictedRegion(
            from_name=control.name,
            to_name=control.to_name,
            type=control.kind,
            value=labels.value_of([label.index for label in found], browser),
        )
        results.append(
            PredictedTask(
                result=[region] if found else [],
                score=sum(map(score_of, found)) / max(1, len(found)),
                model_version=version_name(model.version),
            )
        )
    return PredictedTasks(results=results)


def _paired(event: AnnotationsEvent) -> list[tuple[StudioAnnotation, StudioTask]]:
    """Return annotations with their tasks.

    Raises:
        RequestError: A task is missing.
    """
    tasks: Mapping[int, StudioTask] = {task.id: task for task in event.task}
    for annotation in event.annotation:
        if annotation.task not in tasks:
            raise RequestError(
                f"annotation {annotation.id} is of task {annotation.task}, which is not among the "
                "tasks of the event; send it too"
            )
    return [(annotation, tasks[annotation.task]) for annotation in event.annotation]


async def _keep(
    request: Request,
    service: Service,
    annotation: StudioAnnotation,
    task: StudioTask,
    project: StudioProject,
) -> bool:
    """Store an annotation in place of what it was before; return whether an entry is new."""
    said = None
    if not annotation.was_cancelled:
        said = await _said(request, service, annotation, task, project)
    series = series_of(project, annotation.id)
    is_new = await replace_feedback(request, service, series, series + annotation.updated_at, said)
    return is_new and said is not None


async def _said(
    request: Request,
    service: Service,
    annotation: StudioAnnotation,
    task: StudioTask,
    project: StudioProject,
) -> FeedbackEntry | None:
    """Return what an annotation says of the labels of the model that its prediction is of.

    Where Label Studio says only that the annotation began with a prediction, it is made again.
    """
    shown = None if annotation.prediction is None else annotation.prediction.model_version
    models, default = service.manager.serving().models, _default_model(service)
    model = models.get(version_of(shown) or default.version, default)
    labels = await run_in_threadpool(labels_of, project.label_config, model)
    predicted = shown_paths(annotation, labels)
    if predicted is None and annotation.parent_prediction is not None:
        text = labels.control.text_of(task.data, service.settings.max_text_characters)
        answers = await _answers(request, service, labels, model, [text])
        again = await run_in_threadpool(_predicted, labels, model, answers)
        regions = [region.model_dump() for region in again.results[0].result]
        predicted = labels.chosen(regions)

    def judge() -> FeedbackEntry | None:
        return judged(
            annotation,
            task,
            project,
            labels=labels,
            predicted=predicted,
            browser=browser_of(model.predictor),
            catalogue=model.predictor.catalogue,
            version=model.version,
            max_characters=service.settings.max_text_characters,
        )

    return await run_in_threadpool(judge)
