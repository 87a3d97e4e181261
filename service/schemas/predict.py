"""Answers about texts: one or several, lines of a batch, a JSON schema of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema

from longtail.models.names import CorrectionName
from longtail.models.options import AimName
from longtail.models.results import Prediction
from longtail.service.schemas.base import Answer, ModelReference, Problem


@dataclass(frozen=True, slots=True, repr=False)
class TextResult(Prediction):
    """The labels of one text."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON schema, with the descriptions of inherited fields."""
        shown = handler(schema)
        fields = handler.resolve_ref_schema(shown)["properties"]
        inherited = TypeAdapter(Prediction).json_schema(mode="serialization")["properties"]
        for name, field in inherited.items():
            fields[name].setdefault("description", field["description"])
        return shown


class PredictResponse(Answer):
    """The labels of every text of a request."""

    model: ModelReference
    scorer: str
    correction: Literal["none", "prior", "tree"]
    """What was added to the scores."""
    tail_dial: float
    aim: AimName | None = None
    """That of the request; absent where it had none."""
    results: list[TextResult]
    """One for each text, in the order of the request."""


class CandidateSchema(Answer):
    """A named JSON schema for structured output."""

    model_config = ConfigDict(validate_by_name=True)

    name: Literal["labels"] = "labels"
    description: str
    """The model version that found them."""
    strict: Literal[True] = True
    """Nothing but the schema may be answered."""
    content: dict[str, Any] = Field(alias="schema")
    """A JSON schema of an object with `labels`, a list of ids. `enum` has the ids, best first;
    `description` has the name of each on a line of its own. Without candidates the list must be
    empty."""


def schema_of(prediction: Prediction, version: int) -> CandidateSchema:
    """Return the schema of the labels of a text, which a version of the model has found."""
    items: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "maxItems": 0}
    if prediction.labels:
        names = "\n".join(f"{label.id}: {label.name}" for label in prediction.labels)
        choices = {"type": "string", "enum": [label.id for label in prediction.labels]}
        described = f"Ids of the labels that fit the text:\n{names}"
        items = {"type": "array", "items": choices, "description": described}
    content = {
        "type": "object",
        "properties": {"labels": items},
        "required": ["labels"],
        "additionalProperties": False,
    }
    description = f"Labels by version {version} of the model"
    return CandidateSchema(description=description, content=content)


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class BatchResult(TextResult):
    """The answer to one line of a batch."""

    index: int
    """Number of the line among lines that are not blank, from 0."""
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
