"""The shapes of requests and answers, as the OpenAPI document publishes them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic.json_schema import models_json_schema
from pydantic_core import PydanticCustomError

SURROGATE = re.compile("[\ud800-\udfff]")


def check_text(text: str) -> str:
    """Return a text that can be labelled, as it came.

    Raises:
        PydanticCustomError: It can't be labelled.
    """
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


def _whole(value: object) -> object:
    """Turn 3.0 into 3: JSON knows no difference."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WholeNumber = Annotated[int, BeforeValidator(_whole)]
VersionNumber = Annotated[int, Field(ge=1, le=2**63 - 1), BeforeValidator(_whole)]
Version = Annotated[
    VersionNumber | Literal["current"],
    WrapValidator(_check_version),
]
# The pattern only tells clients what `check_text` checks, whose answers are clearer.
_SOME_TEXT = r"^[^\x00]*[^\s\x00\x1c-\x1f\x85][^\x00]*$"
Text = Annotated[str, Field(json_schema_extra={"pattern": _SOME_TEXT}), AfterValidator(check_text)]


LabelSetName = Annotated[str, Field(min_length=1, max_length=100)]


class Options(BaseModel):
    """What to answer about a text."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )

    k: WholeNumber = Field(5, ge=1)
    """Labels to return for each text."""
    scorer: Annotated[str, Field(max_length=100)] | None = None
    """How to score labels; one of the model's `scorers`, its default where absent."""
    threshold: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    """Return only labels of at least this probability; for scorers that give one. The answer has
    `warnings` where labels that passed have a probability that is often far too high."""
    correction: Literal["none", "prior", "tree"] | None = None
    """What to add to the scores against the bias of negative sampling: nothing, or what the scorer
    was trained with, which is also the default."""
    tail_dial: float = Field(0.0, ge=0, le=1000, allow_inf_nan=False)
    """How much rare labels are raised: this times the log of its share of the training data is
    taken off each label's score. Above 0, labels have no probabilities."""
    include: list[str] | None = Field(None, examples=[["1264", "1309"]])
    """Ids of the only labels to return, together with those of `include_set`; all where neither is
    given. The answer is exact all the same."""
    exclude: list[str] = Field([], examples=[["2136"]])
    """Ids of labels not to return, even if they are included."""
    include_set: LabelSetName | None = None
    """Name of a stored set of labels (`GET /v1/label-sets`) to return besides `include`."""
    exclude_set: LabelSetName | None = None
    """Name of a stored set of labels not to return besides `exclude`."""
    explain: bool = False
    """Whether to say of each label why it was found."""
    version: Version | None = None
    """Model version, a number or `current`; the service's first where absent."""


class PredictRequest(Options):
    """One text or several, and what to answer about each."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["text"]}, {"required": ["texts"]}],
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
    texts: list[Text] = Field([], min_length=1)
    """Texts to label, answered in this order; give either this or `text`."""
    timeout_s: float | None = Field(None, ge=0.001, le=86400, allow_inf_nan=False)
    """Seconds in which the answer is of use, at least 0.001; the service's own limit where absent
    or longer."""

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
    id: Annotated[str, Field(max_length=1000)] | WholeNumber | None = None
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


class TokenContribution(Answer):
    """What a token of the text adds to the score of the sparse model."""

    token: str
    """A word or phrase as the sparse model knows it: lower-case, perhaps a lemma."""
    contribution: FiniteFloat
    """Its tf-idf in the text times its weight for the label; below 0 it speaks against it."""
    spans: list[tuple[int, int]]
    """Where it stands in the text, up to 50 places: the first character, and the one behind the
    last. Characters are Unicode code points; in JavaScript, those of `Array.from(text)`."""


class TokenExplanation(Answer):
    """Of what the sparse model's score of a label is the sum."""

    tokens: list[TokenContribution]
    """Up to 10 that speak for the label and 5 against it, the largest contribution first."""
    rest: FiniteFloat
    """The sum of all other tokens."""
    bias: FiniteFloat
    """What the label gets whatever the text."""


class Keyword(Answer):
    """A token by which the sparse model knows a label."""

    token: str
    weight: FiniteFloat


class NearLabel(Answer):
    """A label that is like another one."""

    id: str
    name: str
    similarity: FiniteFloat
    """Cosine of the labels' vectors; of their sparse weights where the model has no encoder."""


class ScoreExplanation(Answer):
    """What one scorer gives to a label: `base`, `correction` and `tail_dial` add up to `score`."""

    scorer: str
    score: FiniteFloat
    """Higher is better; comparable only within one scorer. Other scorers than the one asked for are
    corrected as they were trained."""
    base: FiniteFloat
    correction: FiniteFloat
    """What the correction adds."""
    tail_dial: FiniteFloat
    """What the tail dial adds."""


class LabelExplanation(Answer):
    """Why a label was found."""

    tokens: TokenExplanation | None
    """What the tokens of the text say; null where the sparse model does not know the label."""
    keywords: list[Keyword]
    """What the sparse model knows the label by, the largest weight first."""
    nearest: list[NearLabel]
    """Labels that are like it, the nearest first."""
    training_count: int
    """Number of training documents that carry it."""
    scores: list[ScoreExplanation]
    """Of every scorer of the model that knows the label."""


class ScoredLabel(Answer):
    """One label and how well it fits."""

    id: str
    name: str
    score: FiniteFloat
    """Higher is better; comparable only within one scorer."""
    probability: FiniteFloat | None
    """Probability that the label is right, where the scorer has one."""
    explanation: LabelExplanation | None = None
    """Why it was found; only where `explain` was asked for."""


class AnswerWarning(Answer):
    """What to know about some labels of an answer before relying on them."""

    code: Literal["unreliable-probabilities"]
    """The kind of warning; compare with this, not with the words.

    `unreliable-probabilities`: the labels have at most one training document, and the
    probabilities that this scorer gives to such labels are often far too high. It is about the
    labels that passed the `threshold`; where none was asked for, about those of at least 0.5."""
    detail: str
    """In words, with what to do."""
    label_ids: list[str]
    """Ids of the labels that it is about."""


class TextResult(Answer):
    """The labels of one text."""

    labels: list[ScoredLabel]
    """Best first; equal scores in the order of the label catalogue."""
    num_tokens: int
    """Tokens of the text that the scorer read: the encoder's, its special ones too, and those that
    are in several windows once; words for `sparse`. A blend is counted as its encoder reads."""
    num_text_tokens: int
    """Tokens that the whole text has, counted alike."""
    known_tokens: int
    """How much of what was read the scorer's vocabulary knows: tokens of the encoder other than
    special and unknown ones; for `sparse` the different words and phrases that it has a feature
    for; for a blend of both the larger number. Where it is 0, the labels say nothing about the
    text: they are those that the model gives to any text."""
    truncated: bool
    """Whether the text has more tokens than were read, so that its end was left out; in a blend
    `sparse` reads it all the same."""
    exact: bool
    """Whether it is certain that no other label has a better score."""
    warnings: list[AnswerWarning] = Field([])
    """What to know about labels before relying on them; only where there is something."""


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
    error: str | None = None
    """The same as `detail`, where clients of the Open Inference Protocol look; only under `/v2`."""


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
    corrections: dict[str, list[Literal["none", "prior", "tree"]]]
    """Of each scorer, what its scores can be corrected with; what holds where a request says
    nothing comes first."""
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


class ServiceLimits(Answer):
    """What one request may ask for; more is refused with 422."""

    max_k: int
    """Labels of each text."""
    max_texts: int
    max_text_characters: int
    """Characters (Unicode code points) of one text."""
    max_explained_labels: int
    """Labels to explain: `k` times the texts."""
    max_queue_tokens: int
    """Tokens that may wait, of all requests together, before more are refused with 429."""


class Runtime(Answer):
    """What the service computes with; numbers of threads are those of each library in a worker."""

    device: str | None
    """`cpu` or `cuda`; null as long as no model is loaded."""
    encoder_precision: str | None
    """What the encoder of the default model computes in; null where it has none."""
    max_batch_tokens: int | None
    """Tokens computed together, padding included; null as long as no model is loaded."""
    compute_workers: int
    """Batches computed at a time."""
    torch_threads: int | None
    """Of PyTorch; null, like all below, where the service was started without these libraries."""
    faiss_threads: int | None
    """Of FAISS."""
    tokeniser_threads: int | None
    """Of the tokeniser."""
    torch_version: str | None
    """Release of PyTorch."""
    faiss_version: str | None
    """Release of FAISS."""


class ModelList(Answer):
    """What the registry holds and the service has loaded."""

    models: list[ModelSummary]
    """In rising order of version."""
    problem: str | None
    """Why the registry's `current` can't be followed at the moment, if so."""
    limits: ServiceLimits
    runtime: Runtime


class CanaryRequest(BaseModel):
    """A version to try, and on how much of the traffic."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_extra={"examples": [{"version": 2, "share": 0.1}]},
    )

    version: VersionNumber
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


class LabelSummary(Answer):
    """A label of the catalogue."""

    id: str
    name: str
    description: str
    """A text about the label that its publisher gave; may be empty."""
    training_count: int
    """Number of training documents that carry it."""


_MODEL_EXAMPLE: JsonDict = {
    "version": 1,
    "digest": "75ae5e8ced3129e3939d64899df9a8341fa0ce83482e9482a3d28021f793a8a0",
}
_LABEL_EXAMPLE: JsonDict = {
    "id": "1264",
    "name": "olive oil",
    "description": "",
    "training_count": 25,
}


class LabelList(Answer):
    """The labels that a query finds."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"model": _MODEL_EXAMPLE, "total": 1, "labels": [_LABEL_EXAMPLE]}]
        }
    )

    model: ModelReference
    total: int
    """How many it finds in all."""
    labels: list[LabelSummary]
    """Those that were asked for, the best first."""


class LabelDetail(LabelSummary):
    """All that is known of a label."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                _LABEL_EXAMPLE
                | {
                    "model": _MODEL_EXAMPLE,
                    "pseudo_description": "olive oil. olive oil virgin",
                    "keywords": [{"token": "olive", "weight": 2.25}],
                    "nearest": [{"id": "2136", "name": "olive", "similarity": 0.75}],
                    "scorers": ["retrieval", "classifier", "sparse"],
                }
            ]
        }
    )

    model: ModelReference
    pseudo_description: str
    """Name, description and keywords, as the label encoder read them; may be empty."""
    keywords: list[Keyword]
    """What the sparse model knows the label by, the largest weight first."""
    nearest: list[NearLabel]
    """Labels that are like it, the nearest first."""
    scorers: list[str]
    """Those that can give it a score."""


class LabelSetSummary(Answer):
    """A stored set of labels."""

    name: str
    label_count: int
    """How many ids it has; a model version may lack some of them."""


class LabelSetList(Answer):
    """The stored sets of labels."""

    label_sets: list[LabelSetSummary]
    """By name."""


class Health(Answer):
    """That a probe succeeded."""

    status: Literal["alive", "ready"]


def batch_schemas() -> dict[str, Any]:
    """Return the OpenAPI schemas of the lines of a batch, which no route names by itself."""
    return schemas_of(BatchLine, BatchResult, BatchError, BatchEnd)


def schemas_of(*models: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI schemas of models, and of all that they are made of."""
    kinds: list[tuple[type[BaseModel], Literal["validation"]]] = [
        (model, "validation") for model in models
    ]
    _, definitions = models_json_schema(kinds, ref_template="#/components/schemas/{model}")
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas
