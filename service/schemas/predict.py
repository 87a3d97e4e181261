"""Requests and answers about texts: one or several, lines of a batch, a JSON schema of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from longtail.models.names import CorrectionName
from longtail.models.options import AimName
from longtail.models.parts.texts import joined_text
from longtail.models.results import Prediction
from longtail.service.schemas.base import (
    Answer,
    Listed,
    ModelReference,
    Options,
    Problem,
    Text,
    Title,
    WholeNumber,
    as_one_error,
    schemas_of,
)


class Titled(Options):
    """What to answer about a text that may have a title."""

    title: Title = None
    """Title of `text`. Both are labelled as one text, the title, a line feed, and `text`: what an
    explanation quotes stands there, and feedback on it must name that text."""


class PredictRequest(Titled):
    """One text or several, and what to answer about each."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["text"]},
                {"required": ["texts"], "not": {"required": ["title"]}},
            ],
            "examples": [
                {"text": "Imports of olive oil from third countries", "k": 5},
                {
                    "texts": ["Imports of olive oil", "Fishing quotas"],
                    "k": 3,
                    "scorer": "sparse",
                    "tail_dial": 0.5,
                    "explain": True,
                },
            ],
        },
    )

    text: Text = Field("", validate_default=False)
    """The text to label; give either this or `texts`."""
    texts: Listed[Text] = Field(default_factory=list, min_length=1)
    """Texts to label, answered in this order; give either this or `text`."""
    timeout_s: float | None = Field(None, ge=0.001, le=86400, allow_inf_nan=False)
    """Seconds after which the answer is no longer needed, at least 0.001; the service's own limit
    where absent or longer."""

    @model_validator(mode="after")
    def _one_of_text_and_texts(self) -> Self:
        if len({"text", "texts"} & self.model_fields_set) != 1:
            raise PydanticCustomError("text_or_texts", "Give exactly one of 'text' and 'texts'")
        if self.texts and "title" in self.model_fields_set:
            raise PydanticCustomError(
                "title_of_texts",
                "Give 'title' with 'text' only; each of 'texts' begins with its own",
            )
        return self

    @property
    def all_texts(self) -> tuple[str, ...]:
        """The texts, of either field, a title joined."""
        return tuple(self.texts) or (joined_text(self.title, self.text),)


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


_ONE_ERROR = as_one_error(
    "line_id", "Give the id as a string of at most 1000 characters or a number"
)


class BatchOptions(Options):
    """Defaults for the lines of a batch, from the query."""

    model_config = ConfigDict(strict=False)  # a query has strings only


class BatchLine(Titled):
    """One line of a batch: a text, and what to answer about it."""

    text: Text
    """The text to label."""
    id: Annotated[Annotated[str, Field(max_length=1000)] | WholeNumber | None, _ONE_ERROR] = None
    """Returned with the answer to this line."""

    @property
    def whole_text(self) -> str:
        """The text, its title joined."""
        return joined_text(self.title, self.text)


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


def batch_schemas() -> dict[str, Any]:
    """Return the OpenAPI schemas of the lines of a batch, which no route refers to."""
    return schemas_of(BatchLine, BatchResult, BatchError, BatchEnd)
