"""The shapes of requests and answers, as the OpenAPI document publishes them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.json_schema import models_json_schema
from pydantic_core import PydanticCustomError

SURROGATE = re.compile("[\ud800-\udfff]")


def _check_text(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("text_blank", "The text is empty or only white space")
    if "\x00" in text:
        raise PydanticCustomError("text_nul", "The text holds a NUL character; remove it")
    if SURROGATE.search(text):
        raise PydanticCustomError(
            "text_surrogate", "The text holds half of a surrogate pair; send valid Unicode"
        )
    return text


def _check_version(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    """Give one error instead of one for each kind of version that the value is not.

    Raises:
        PydanticCustomError: The value is no version.
    """
    try:
        return validate(value)
    except ValidationError as error:
        raise PydanticCustomError(
            "model_version", "Give a version as a whole number from 1, or as 'current'"
        ) from error


Version = Annotated[
    Annotated[int, Field(ge=1, le=2**63 - 1)] | Literal["current"], WrapValidator(_check_version)
]
# The pattern only tells clients what `_check_text` checks, whose answers are clearer.
_SOME_TEXT = r"^[^\x00]*[^\s\x00\x1c-\x1f\x85][^\x00]*$"
Text = Annotated[str, Field(json_schema_extra={"pattern": _SOME_TEXT}), AfterValidator(_check_text)]


class Options(BaseModel):
    """What to answer about a text."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )

    k: int = Field(5, ge=1)
    """Labels to return for each text."""
    scorer: Annotated[str, Field(max_length=100)] | None = None
    """How to score labels; one of the model's `scorers`, its default where absent."""
    threshold: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    """Return only labels of at least this probability; for scorers that give one."""
    correction: Literal["none", "prior", "tree"] | None = None
    """What to add to the scores against the bias of negative sampling: nothing, or what the scorer
    was trained with, which is also the default."""
    tail_dial: float = Field(0.0, ge=0, le=1000, allow_inf_nan=False)
    """How much rare labels are raised: this times the log of its share of the training data is
    taken off each label's score. Above 0, labels have no probabilities."""
    version: Version | None = None
    """Model version, a number or `current`; the service's first where absent."""


class PredictRequest(Options):
    """One text or several, and what to answer about each."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["text"]}, {"required": ["texts"]}],
            "examples": [{"text": "Imports of olive oil from third countries", "k": 5}],
        },
    )

    text: Text = Field("", validate_default=False)
    """The text to label; give either this or `texts`."""
    texts: list[Text] = Field([], min_length=1)
    """Texts to label, answered in this order; give either this or `text`."""
    timeout_s: float | None = Field(None, gt=0, le=86400, allow_inf_nan=False)
    """Seconds in which the answer is of use; the service's own limit where absent or longer."""

    @model_validator(mode="after")
    def _one_of_text_and_texts(self) -> Self:
        if len({"text", "texts"} & self.model_fields_set) != 1:
            raise PydanticCustomError("text_or_texts", "Give exactly one of 'text' and 'texts'")
        return self

    @property
    def all_texts(self) -> tuple[str, ...]:
        """The texts, whichever way they came."""
        return tuple(self.texts) or (self.text,)


class BatchOptions(Options):
    """What to answer about the lines of a batch that say nothing about it, from the query."""

    model_config = ConfigDict(strict=False)  # a query has strings only


class BatchLine(Options):
    """One line of a batch: a text, and what to answer about it."""

    text: Text
    """The text to label."""
    id: Annotated[str, Field(max_length=1000)] | int | None = None
    """Whatever the answer shall be known by."""


class Answer(BaseModel):
    """Base of all answers: fields are described by their docstrings."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ModelReference(Answer):
    """The model that answered."""

    version: int
    """Number of the version in the registry."""
    digest: str
    """Digest of the whole bundle: the same digest is the same model."""


class ScoredLabel(Answer):
    """One label and how well it fits."""

    id: str
    name: str
    score: FiniteFloat
    """Higher is better; comparable only within one scorer."""
    probability: FiniteFloat | None
    """Probability that the label is right, where the scorer has one."""


class TextResult(Answer):
    """The labels of one text."""

    labels: list[ScoredLabel]
    """Best first; equal scores in the order of the label catalogue."""
    num_tokens: int
    """Tokens of the text that the scorer read."""
    truncated: bool
    """Whether the text was longer than the scorer reads, so that its end was left out."""
    exact: bool
    """Whether it is certain that no other label has a better score."""


class PredictResponse(Answer):
    """The labels of every text of a request."""

    model: ModelReference
    scorer: str
    correction: Literal["none", "prior", "tree"]
    """What was added to the scores."""
    tail_dial: float
    results: list[TextResult]
    """One for each text, in the order of the request."""


class ProblemDetail(Answer):
    """One thing that is wrong with a request."""

    pointer: str
    """JSON pointer into the body (RFC 6901), or the name of a parameter."""
    detail: str


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    type: str
    """URI that names the kind of problem; compare with this, not with the words."""
    title: str
    """The kind of problem in words."""
    status: int
    """The HTTP status."""
    detail: str
    """What was wrong this time, and what to do."""
    instance: str | None = None
    """Path of the request."""
    errors: list[ProblemDetail] | None = None
    """All that is wrong with the body, up to a limit; only where the body was not valid."""


class BatchResult(TextResult):
    """The line that answers one line of a batch."""

    index: int
    """Number of the line among those that are not blank, from 0."""
    id: str | int | None
    """As the line had it."""
    version: int
    """Number of the model version that answered."""
    scorer: str
    correction: Literal["none", "prior", "tree"]
    tail_dial: float


class BatchError(Answer):
    """The line that answers one line of a batch that can't be answered otherwise."""

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
    """Results for texts that were longer than the scorer reads."""
    versions: dict[int, int]
    """Results by model version."""
    error: Problem | None
    """Why the batch ended early, if it did."""


class BatchEnd(Answer):
    """The last line of the answer to a batch; where it is missing, the answer is not whole."""

    summary: BatchSummary


class ModelSummary(Answer):
    """One version of the registry."""

    version: int
    loaded: bool
    """Whether requests can name this version."""
    default: bool
    """Whether this version answers requests that name none."""
    current: bool
    """Whether the registry's alias `current` points to this version now."""
    published_at: str | None
    """ISO 8601, UTC."""
    digest: str | None
    label_count: int | None
    scorers: list[str]
    default_scorer: str | None
    metrics: dict[str, Any]
    """As measured after training; empty where it was not."""
    problem: str | None
    """Why the version can't be read, if so; the fields about its content are then empty."""
    state: Literal["loaded", "loading", "draining", "failed", "not-loaded"]
    """`draining`: it answers no new requests, but has not ended those that it had."""
    traffic_share: float
    """Share of the requests naming no version that it gets."""
    load_problem: str | None
    """Why it could not be loaded when it was last tried, if so."""


class ModelList(Answer):
    """What the registry holds and the service has loaded."""

    models: list[ModelSummary]
    """In rising order of version."""
    problem: str | None
    """Why the registry's `current` can't be followed at the moment, if so."""


class CanaryRequest(BaseModel):
    """A version to try, and on how much of the traffic."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_extra={"examples": [{"version": 2, "share": 0.1}]},
    )

    version: int = Field(ge=1, le=2**63 - 1)
    """Number of the version; it is loaded if need be."""
    share: float = Field(ge=0, le=1, allow_inf_nan=False)
    """Share of the requests that name no version."""


class ModelChange(Answer):
    """What is served after a change."""

    default: int
    """The version that answers requests that name none."""
    current: int | None
    """The version that answers requests that name `current`."""
    loaded: list[int]
    """All versions that requests can name."""
    canary: CanaryRequest | None
    seconds: float
    """How long the change took."""


class Health(Answer):
    """That a probe succeeded."""

    status: Literal["alive", "ready"]


def batch_schemas() -> dict[str, Any]:
    """Return the OpenAPI schemas of the lines of a batch, which no route names by itself."""
    lines: list[tuple[type[BaseModel], Literal["validation"]]] = [
        (line, "validation") for line in (BatchLine, BatchResult, BatchError, BatchEnd)
    ]
    _, definitions = models_json_schema(lines, ref_template="#/components/schemas/{model}")
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas
