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
from pydantic_core import PydanticCustomError

_SURROGATE = re.compile("[\ud800-\udfff]")


def _check_text(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("text_blank", "The text is empty or only white space")
    if "\x00" in text:
        raise PydanticCustomError("text_nul", "The text holds a NUL character; remove it")
    if _SURROGATE.search(text):
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


class PredictRequest(BaseModel):
    """One text or several, and what to answer about each."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_extra={
            "oneOf": [{"required": ["text"]}, {"required": ["texts"]}],
            "examples": [{"text": "Imports of olive oil from third countries", "k": 5}],
        },
    )

    text: Text = Field("", validate_default=False)
    """The text to label; give either this or `texts`."""
    texts: list[Text] = Field([], min_length=1)
    """Texts to label, answered in this order; give either this or `text`."""
    k: int = Field(5, ge=1)
    """Labels to return for each text."""
    scorer: Annotated[str, Field(max_length=100)] | None = None
    """How to score labels; one of the model's `scorers`, its default where absent."""
    threshold: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    """Return only labels of at least this probability; for scorers that give one."""
    version: Version | None = None
    """Model version, a number or `current`; the service's first where absent."""

    @model_validator(mode="after")
    def _one_of_text_and_texts(self) -> Self:
        if len({"text", "texts"} & self.model_fields_set) != 1:
            raise PydanticCustomError("text_or_texts", "Give exactly one of 'text' and 'texts'")
        return self

    @property
    def all_texts(self) -> tuple[str, ...]:
        """The texts, whichever way they came."""
        return tuple(self.texts) or (self.text,)


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


class PredictResponse(Answer):
    """The labels of every text of a request."""

    model: ModelReference
    scorer: str
    results: list[TextResult]
    """One for each text, in the order of the request."""


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


class ModelList(Answer):
    """What the registry holds and the service has loaded."""

    models: list[ModelSummary]
    """In rising order of version."""


class Health(Answer):
    """That a probe succeeded."""

    status: Literal["alive", "ready"]


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
