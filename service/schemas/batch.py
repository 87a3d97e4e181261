"""Lines of `POST /v1/batch` and of `longtail predict`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    ConfigDict,
    Field,
)

from longtail.models.names import AimName, CorrectionName
from longtail.service.schemas.base import (
    Answer,
    Options,
    Text,
    WholeNumber,
    as_one_error,
    schemas_of,
)
from longtail.service.schemas.predict import TextResult
from longtail.service.schemas.problem import Problem

_ONE_ERROR = as_one_error(
    "line_id", "Give the id as a string of at most 1000 characters or a number"
)


class BatchOptions(Options):
    """Defaults for the lines of a batch, from the query."""

    model_config = ConfigDict(strict=False)  # a query has strings only


class BatchLine(Options):
    """One line of a batch: a text, and what to answer about it."""

    text: Text
    """The text to label."""
    id: Annotated[Annotated[str, Field(max_length=1000)] | WholeNumber | None, _ONE_ERROR] = None
    """Returned with the answer to this line."""


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class BatchResult(TextResult):
    """The answer to one line of a batch."""

    index: int
    """Number of the line among those that are not blank, from 0."""
    id: str | int | None
    """That of the line; null where it has none."""
    version: int
    """Number of the model version that answered."""
    scorer: str
    correction: CorrectionName
    tail_dial: float
    aim: AimName | None = None
    """That of the line; absent where it had none."""


class BatchError(Answer):
    """The answer to a line of a batch that could not be answered with labels."""

    index: int
    id: str | int | None
    error: Problem


class BatchSummary(Answer):
    """What became of a whole batch."""

    complete: bool
    """Whether every line that was sent has an answer above."""
    num_lines: int
    num_results: int
    num_errors: int
    num_truncated: int
    """Results for texts that the scorer did not read to their end."""
    versions: dict[int, int]
    """Number of results by model version."""
    error: Problem | None
    """Why the batch ended early, if it did."""


class BatchEnd(Answer):
    """The last line of the answer to a batch; where it is missing, the answer is incomplete."""

    summary: BatchSummary


def batch_schemas() -> dict[str, Any]:
    """Return the OpenAPI schemas of the lines of a batch, which no route declares."""
    return schemas_of(BatchLine, BatchResult, BatchError, BatchEnd)
