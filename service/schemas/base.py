"""Types that several requests and answers share; problem documents (RFC 9457)."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import is_dataclass
from typing import Annotated, Any, Literal, LiteralString, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaMode
from pydantic_core import PydanticCustomError

from longtail.models.files.typed_json import scalar_in_words
from longtail.models.options import MAX_TAIL_DIAL, AimName
from longtail.models.results import ANSWER

SURROGATE = re.compile("[\ud800-\udfff]")


def check_text(text: str) -> str:
    """Return a text that can be labelled, unchanged."""
    if not text.strip():
        raise PydanticCustomError("text_blank", "The text is empty or only white space")
    return check_characters(text)


def check_characters(text: str) -> str:
    """Return a text, blank or not, that has no characters that can't be used."""
    if "\x00" in text:
        raise PydanticCustomError("text_nul", "The text holds a NUL character; remove it")
    if SURROGATE.search(text):
        raise PydanticCustomError(
            "text_surrogate", "The text holds half of a surrogate pair; send valid Unicode"
        )
    return text


def as_one_error(kind: LiteralString, wanted: LiteralString) -> WrapValidator:
    """Return a validator that gives one error instead of one for each type that a value could have.

    Those would name pydantic's types as if they were fields.

    Args:
        kind: Kind of the error.
        wanted: The expected value, in words.
    """

    def check(value: object, validate: ValidatorFunctionWrapHandler) -> object:
        try:
            return validate(value)
        except ValidationError as error:
            raise PydanticCustomError(
                kind, wanted + "; got {value}", {"value": scalar_in_words(value)}
            ) from error

    return WrapValidator(check)


def _whole(value: object) -> object:
    """Turn 3.0 into 3: JSON knows no difference."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WholeNumber = Annotated[int, BeforeValidator(_whole)]
MAX_VERSION = 9 * 10**18
"""A 64-bit number that is exact as a float, as OpenAPI documents write it."""
VersionNumber = Annotated[int, Field(ge=1, le=MAX_VERSION), BeforeValidator(_whole)]
Version = Annotated[
    VersionNumber | Literal["current"],
    as_one_error("model_version", "Give a version as a whole number from 1, or as 'current'"),
]
# The pattern only tells clients what `check_text` checks, whose answers are clearer.
_SOME_TEXT = r"^[^\x00]*[^\s\x00\x1c-\x1f\x85][^\x00]*$"
Text = Annotated[str, Field(json_schema_extra={"pattern": _SOME_TEXT}), AfterValidator(check_text)]
Title = Annotated[str, AfterValidator(check_characters)] | None
LabelSetName = Annotated[str, Field(min_length=1, max_length=100)]
Item = TypeVar("Item")
MAX_ITEMS = 300_000
"""Most items of a list in a request for which no smaller bound is known; the same as
`longtail.service.wire.lines.MAX_ELEMENTS`."""
Listed: TypeAlias = Annotated[list[Item], Field(max_length=MAX_ITEMS, fail_fast=True)]
"""A list of a request: bounded; validation stops at its first wrong item."""


def _accept_of(value: object) -> object:
    """Return what a string means: a query and a command line have nothing else."""
    if not isinstance(value, str):
        return value
    with suppress(ValueError):
        return float(value)
    return {"true": True, "false": False}.get(value, value)


Accept = Annotated[
    bool | float | Annotated[str, Field(max_length=100)],
    BeforeValidator(_accept_of),
    as_one_error("accept", "Give true, a precision such as 0.95, or a name such as 'recall 0.9'"),
]
"""How a request names a promise."""


Threshold = Annotated[
    Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | Literal["auto"],
    as_one_error("threshold", "Give a probability from 0 to 1, or 'auto'"),
]
"""Least probability of a label."""


def _object_of(value: object) -> object:
    """Return the object that a string holds: a query and a command line have nothing else."""
    if not isinstance(value, str):
        return value
    with suppress(ValueError, RecursionError):
        return json.loads(value)
    return value


class SchemeOptions(BaseModel):
    """What to answer of one scheme; fields that are absent are those of the request."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )

    k: Annotated[WholeNumber, Field(ge=1)] | None = None
    """Labels to return of the scheme."""
    threshold: Threshold | None = None
    """Least probability of its labels."""
    accept: Accept | None = None
    """Promise by which its labels are marked."""


SchemeName = Annotated[str, Field(min_length=1, max_length=1000)]


class Options(BaseModel):
    """What to answer about a text."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )

    k: WholeNumber = Field(5, ge=1)
    """Labels to return for each text; absent: 5 (50 with the threshold `auto`), or all of a model
    that has fewer."""
    scorer: Annotated[str, Field(max_length=100)] | None = None
    """How to score labels; one of the model's `scorers`, its default where absent."""
    threshold: Threshold | None = None
    """Return only labels of at least this probability; or `auto`: as many labels as the text needs
    by their probabilities, at most `k`, which is 50 then where it is absent. For scorers that give
    probabilities; `auto` for those with one of the model's `thresholds`, and not with an aim. The
    answer has `warnings` where labels passed whose probabilities are often far too high."""
    correction: Literal["none", "prior", "tree"] | None = None
    """What to add to the scores against the bias of negative sampling: nothing, or what the scorer
    was trained with, which is also the default."""
    tail_dial: float = Field(0.0, ge=0, le=MAX_TAIL_DIAL, allow_inf_nan=False)
    """Strength of logit adjustment at query time: this times the log of a label's share of the
    training data is subtracted from its score, so that more of it favours rare labels. Above 0,
    labels have no probabilities."""
    aim: AimName | None = None
    """The measure to rank for: `precision` (most labels right; the default), or `propensity`
    (propensity-scored precision, which favours rare labels). With the latter, `score` is the
    probability times the label's inverse propensity, `probability` stays as it is, and `threshold`
    leaves only labels of that probability to choose from. Not together with `tail_dial`; for
    scorers with probabilities fitted on a dev split (`GET /v1/models`)."""
    accept: Accept | None = None
    """Mark each label as `accepted` or not, by a promise that the model keeps: a number, the
    precision; its name, such as `recall 0.9`; or true, the model's default promise
    (`GET /v1/models` lists them). The ranking stays as it is. The promise is about all labels: of
    those that a filter leaves, nothing is promised. Not together with `aim`, `tail_dial` or another
    `correction`."""
    include: Listed[str] | None = Field(None, examples=[["1264", "1309"]])
    """Ids of the only labels to return, together with those of `include_set`; all where neither is
    given. The answer stays exact."""
    exclude: Listed[str] = Field(default_factory=list, examples=[["2136"]])
    """Ids of labels not to return, even if they are included."""
    include_set: LabelSetName | None = None
    """Name of a stored set of labels (`GET /v1/label-sets`) to return besides `include`."""
    exclude_set: LabelSetName | None = None
    """Name of a stored set of labels not to return besides `exclude`."""
    under: Listed[str] = Field(default_factory=list, examples=[["5360"]])
    """Ids of labels: only these are returned, and those that stand below them in the vocabulary, of
    what the fields above let through."""
    schemes: (
        Annotated[
            dict[SchemeName, SchemeOptions],
            Field(min_length=1, max_length=20),
            BeforeValidator(_object_of),
        ]
        | None
    ) = Field(None, examples=[{"topic": {"k": 5}, "genre": {"k": 2, "threshold": 0.5}}])
    """The best labels of each of these schemes, by its own `k`, `threshold` and `accept`, where a
    label file has schemes. The answer is exact in each; every label says its `scheme`."""
    language: Annotated[str, Field(max_length=100)] | None = None
    """Language of the labels' names, one of the model's `languages`; a label that has no name in it
    keeps its own. Absent: the language that was chosen in training."""
    explain: bool = False
    """Whether to explain why each label was found."""
    version: Version | None = None
    """Model version, a number or `current`; the service's first where absent."""

    @property
    def num_labels(self) -> int:
        """Labels to return for each text, of all schemes together."""
        return sum(x.k or self.k for x in self.schemes.values()) if self.schemes else self.k

    @property
    def filters_labels(self) -> bool:
        """Whether only some of the labels may be returned."""
        named = self.exclude or self.include_set or self.exclude_set or self.under
        return self.include is not None or bool(named)

    @model_validator(mode="after")
    def _aim_or_tail_dial(self) -> Self:
        if self.aim is not None and self.tail_dial > 0:
            raise PydanticCustomError(
                "aim_or_tail_dial",
                "Give only one of 'aim' and 'tail_dial': each says how much rare labels count",
            )
        return self


class Answer(BaseModel):
    """Base of all answers: fields are described by their docstrings."""

    model_config = ANSWER


class ModelReference(Answer):
    """The model that answered."""

    version: int
    """Number of the version in the registry."""
    digest: str
    """Digest of the whole bundle: the same digest is the same model."""


def schemas_of(*models: type) -> dict[str, Any]:
    """Return the OpenAPI schemas of models, and of all that they are made of."""
    adapters: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        (each.__name__, "serialization" if is_dataclass(each) else "validation", TypeAdapter(each))
        for each in models
    ]
    _, definitions = TypeAdapter.json_schemas(adapters, ref_template="#/components/schemas/{model}")
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas


class ProblemDetail(Answer):
    """One thing that is wrong with a request."""

    pointer: str
    """JSON pointer into the body (RFC 6901), or the name of a parameter."""
    detail: str


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    type: str
    """URI of the kind of problem; programs should compare this, not the words."""
    title: str
    """The kind of problem in words."""
    status: int
    """The HTTP status."""
    detail: str
    """What was wrong this time, and what to do."""
    instance: str | None = None
    """Path of the request."""
    errors: list[ProblemDetail] | None = None
    """What is wrong with the body, up to a limit; only where the body was not valid."""
    error: str | None = None
    """The same as `detail`, where clients of the Open Inference Protocol look; only under `/v2`."""
