"""From a Label Studio annotation to an entry of feedback."""

from __future__ import annotations

import re
from collections.abc import Sequence

from longtail.models.labels.browsing import LabelBrowser
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.service.protocols.label_studio_labels import ControlLabels
from longtail.service.protocols.label_studio_schemas import (
    StudioAnnotation,
    StudioProject,
    StudioTask,
)
from longtail.service.schemas.feedback import FeedbackEntry, NewLabel
from longtail.service.web.json_body import checked

_VERSION = re.compile(r"longtail-([1-9][0-9]{0,17})")
DELETED = "deleted"
"""Ends the id of what comes last in a series; behind all times."""


def version_name(version: int) -> str:
    """Return how Label Studio knows a model version."""
    return f"longtail-{version}"


def version_of(name: str | None) -> int | None:
    """Return the model version of a name; None where it is none of ours."""
    found = _VERSION.fullmatch(name or "")
    return int(found[1]) if found else None


def series_of(project: StudioProject, annotation_id: int) -> str:
    """Return what the ids of the entries about an annotation begin with.

    With the time at which its project was made, as installations number their projects alike.
    """
    return f"{_name_of(project)}/annotation-{annotation_id}/"


def judged(
    annotation: StudioAnnotation,
    task: StudioTask,
    project: StudioProject,
    *,
    labels: ControlLabels,
    predicted: Sequence[Sequence[str]] | None,
    browser: LabelBrowser,
    catalogue: LabelCatalogue,
    version: int,
    max_characters: int,
) -> FeedbackEntry | None:
    """Return what an annotation says of the labels of a text; None where it says nothing.

    Labels that were predicted and chosen are accepted, those predicted alone are rejected, those
    chosen alone are added, or proposed where the model lacks them.

    Args:
        annotation: What the person chose.
        task: With the text.
        project: Of the task.
        labels: The control, and the labels of its choices.
        predicted: The paths that the person was shown; None: none were shown, so that nothing can
            be accepted or rejected.
        browser: Of the model.
        catalogue: Of the model.
        version: Of the model.
        max_characters: Most characters of the text.

    Raises:
        RequestError: The result is not as Label Studio writes it, or the text is missing.
        RequestValidationError: The text or a label can't be kept.
    """
    chosen, proposed = set[int](), list[NewLabel]()
    for path in labels.chosen(annotation.result or [], f"annotation {annotation.id}: result"):
        row = labels.row_of(path, browser)
        if row is not None:
            chosen.add(row)
        elif not labels.is_heading(path, browser):
            proposed.append(checked(NewLabel, name=path[-1]))
    shown = {labels.row_of(path, browser) for path in predicted or ()} - {None}
    if not chosen and not proposed and not shown:
        return None

    def ids(rows: set[int | None] | set[int]) -> list[str]:
        return [catalogue[row].id for row in sorted(row for row in rows if row is not None)]

    text = labels.control.text_of(task.data, max_characters)
    return checked(
        FeedbackEntry,
        id=series_of(project, annotation.id) + annotation.updated_at,
        text=text if text.strip() else None,
        document_id=f"{_name_of(project)}/task-{task.id}",
        accepted=ids(chosen & shown),
        rejected=ids(shown - chosen),
        added=ids(chosen - shown),
        proposed=proposed,
        version=version,
    )


def shown_paths(
    annotation: StudioAnnotation, labels: ControlLabels
) -> list[tuple[str, ...]] | None:
    """Return the paths of the prediction that Label Studio kept; None where it kept none of ours.

    Raises:
        RequestError: It is not as Label Studio writes it.
    """
    prediction = annotation.prediction
    if prediction is None or version_of(prediction.model_version) is None:
        return None
    return labels.chosen(prediction.result, f"annotation {annotation.id}: prediction.result")


def _name_of(project: StudioProject) -> str:
    return f"label-studio/{project.id}-{project.created_at}"
