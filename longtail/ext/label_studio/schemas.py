"""Requests and answers of Label Studio's protocol for machine-learning backends.

Only the used fields of a request are read; Label Studio sends many more.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from longtail.models.options import Item
from longtail.service.schemas.base import Answer

MAX_TASKS = 1000
_MAX_ID = 2**63 - 1
_MAX_REGIONS = 10_000
_Tasks: TypeAlias = Annotated[list[Item], Field(max_length=MAX_TASKS, fail_fast=True)]
_Regions = Annotated[list[dict[str, Any]], Field(max_length=_MAX_REGIONS, fail_fast=True)]


def _moment(value: object) -> str:
    """Return a time as ISO 8601 in UTC with microseconds, so texts are ordered as times are."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise PydanticCustomError("time", "Give a time with its zone as ISO 8601")
    try:
        return moment.astimezone(UTC).isoformat(timespec="microseconds")
    except OverflowError:
        raise PydanticCustomError("time", "Give a time of the years 1 to 9999 (UTC)") from None


Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"}), BeforeValidator(_moment)]
RowId = Annotated[int, Field(ge=0, le=_MAX_ID)]


class _Sent(BaseModel):
    """Base of all that Label Studio sends."""

    model_config = ConfigDict(strict=True, frozen=True, use_attribute_docstrings=True)


class SetupRequest(_Sent):
    """A project that is to be labelled."""

    schema_: str = Field(alias="schema")
    """The project's labelling configuration, XML."""


class StudioTask(_Sent):
    """A task: a text among other data."""

    id: RowId
    data: dict[str, Any] = Field(max_length=10_000)
    """Fields of the task; the text is the one that `<Text>` shows."""


class TasksRequest(_Sent):
    """Tasks to predict the labels of."""

    tasks: _Tasks[StudioTask]
    label_config: str
    """The project's labelling configuration, XML."""


class StudioPrediction(_Sent):
    """A prediction for a task, as Label Studio stored it."""

    result: _Regions = []
    model_version: str | None = None


class StudioAnnotation(_Sent):
    """A person's annotation of a task."""

    id: RowId
    task: RowId
    result: _Regions | None = None
    was_cancelled: bool = False
    """Whether the person skipped the task."""
    updated_at: Moment
    prediction: StudioPrediction | None = None
    """The prediction that the person saw, according to Label Studio; without a result if none."""
    parent_prediction: RowId | None = None
    """The prediction that the annotation began with, if any."""


class StudioProject(_Sent):
    """The project of an annotation."""

    id: RowId
    created_at: Moment
    label_config: str


class AnnotationEvent(_Sent):
    """A person submitted, or changed, an annotation."""

    action: Literal["ANNOTATION_CREATED", "ANNOTATION_UPDATED"]
    annotation: StudioAnnotation
    task: StudioTask
    project: StudioProject


class AnnotationsEvent(_Sent):
    """Several annotations were made at once."""

    action: Literal["ANNOTATIONS_CREATED"]
    annotation: _Tasks[StudioAnnotation]
    task: _Tasks[StudioTask]
    project: StudioProject


class DeletedAnnotation(_Sent):
    """An annotation that was deleted."""

    id: RowId


class DeletionEvent(_Sent):
    """Annotations were deleted."""

    action: Literal["ANNOTATIONS_DELETED"]
    annotations: _Tasks[DeletedAnnotation]
    project: StudioProject


class OtherEvent(_Sent):
    """Any other event, which is ignored."""

    action: Annotated[str, Field(max_length=100)]


class StudioHealth(Answer):
    """That the process answers."""

    status: Literal["UP"] = "UP"
    model_class: str = "Longtail"


class ModelVersion(Answer):
    """Who predicts."""

    model_version: str
    """`longtail-` and the number of the version."""


class PredictedRegion(Answer):
    """The labels of a text, as Label Studio writes what a control says."""

    id: str = "longtail"
    from_name: str
    """Name of the control."""
    to_name: str
    """Name of the tag that shows the text."""
    type: Literal["choices", "taxonomy"]
    value: dict[str, Any]


class PredictedTask(Answer):
    """The prediction for a task."""

    result: list[PredictedRegion]
    """One region, or none where no label was found."""
    score: float
    """Mean of the labels' probabilities, else of the sigmoids of their scores; 0 without any."""
    model_version: str


class PredictedTasks(Answer):
    """The prediction for each task, in the order of the request."""

    results: list[PredictedTask]


class WebhookReceipt(Answer):
    """The result of an event."""

    stored: int
    """Number of entries of feedback that were newly stored."""


class TaxonomyItem(Answer):
    """A label or a heading, as `apiUrl` of `<Taxonomy>` gives it."""

    model_config = ConfigDict(populate_by_name=True)

    value: str
    """The displayed text."""
    alias: str
    """The element of the label's path that is stored."""
    is_leaf: bool = Field(serialization_alias="isLeaf")
    """Whether nothing is below it."""
    hint: str | None = None
    """The label's description."""
