"""The shapes of requests and answers, as the OpenAPI document publishes them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    FiniteFloat,
    model_validator,
)
from pydantic_core import PydanticCustomError

from longtail.models.names import Abstention, AimName, ReviewFailure, WarningCode
from longtail.service.schemas.base import Answer, Listed, ModelReference, Options, Text
from longtail.service.schemas.labels import Keyword, NearLabel


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
    texts: Listed[Text] = Field(default_factory=list, min_length=1)
    """Texts to label, answered in this order; give either this or `text`."""
    timeout_s: float | None = Field(None, ge=0.001, le=86400, allow_inf_nan=False)
    """Seconds after which the answer is no longer needed, at least 0.001; the service's own limit
    where absent or longer."""

    review: bool | None = None
    """Whether the best labels of each text are sent to the reviewer of this service (a language
    model or a cross-encoder), whose scores then count beside the model's; absent: as the operator
    has set it, false: never. Not together with `aim`, `tail_dial`, `correction`, `explain` or
    `schemes`."""

    @model_validator(mode="after")
    def _review_of_plain_scores(self) -> Self:
        if self.review and not self.can_be_reviewed:
            raise PydanticCustomError(
                "review",
                "Leave out 'aim', 'tail_dial', 'correction', 'explain', 'schemes', or 'review'",
            )
        return self

    @property
    def can_be_reviewed(self) -> bool:
        """Whether nothing else is asked for that a review does not know."""
        is_other = self.tail_dial > 0 or self.aim is not None or self.correction is not None
        return not (is_other or self.explain or self.schemes)

    @model_validator(mode="after")
    def _one_of_text_and_texts(self) -> Self:
        if len({"text", "texts"} & self.model_fields_set) != 1:
            raise PydanticCustomError("text_or_texts", "Give exactly one of 'text' and 'texts'")
        return self

    @property
    def all_texts(self) -> tuple[str, ...]:
        """The texts, of either field."""
        return tuple(self.texts) or (self.text,)


class TokenContribution(Answer):
    """What a token of the text adds to the score of the sparse model."""

    token: str
    """A word or phrase as the sparse model knows it: lower-case."""
    contribution: FiniteFloat
    """Its tf-idf in the text times its weight for the label; below 0 it is against the label."""
    spans: list[tuple[int, int]]
    """Where it occurs in the text, up to 50 times: its first character, and the one after its
    last. Characters are Unicode code points; in JavaScript, those of `Array.from(text)`."""


class TokenExplanation(Answer):
    """The parts of which the sparse model's score of a label is the sum."""

    tokens: list[TokenContribution]
    """Up to 10 that speak for the label and 5 against it, the largest contribution first."""
    rest: FiniteFloat
    """The sum of all other tokens."""
    bias: FiniteFloat
    """Added for every text."""


class ScoreExplanation(Answer):
    """How one scorer scores a label: `base`, `correction` and `tail_dial` add up to `score`."""

    scorer: str
    score: FiniteFloat
    """Higher is better; comparable only within one scorer. Scorers other than the one asked for are
    corrected as they were trained. An aim is no part of it."""
    base: FiniteFloat
    correction: FiniteFloat
    """What the correction adds."""
    tail_dial: FiniteFloat
    """What the tail dial (logit adjustment at query time) adds."""


class FoundName(Answer):
    """A name of the label that was found in the text."""

    name: str
    is_own_name: bool
    """False: it is another name of the label."""
    manner: Literal["phrase", "sentence", "partly"]
    """Its words in their order; all of them in one sentence; or some of them."""
    count: int
    """How often as a phrase, or else in how many sentences; 0 where only some words are there."""
    in_title: bool
    """Whether all its words are in the first line, or first sentence."""


class SimilarDocument(Answer):
    """A training document that is like the text and carries the label."""

    id: str
    similarity: FiniteFloat
    """Cosine of the two texts' tf-idf."""
    share: FiniteFloat
    """Of what all similar documents with the label say for it."""


class BlendedScorer(Answer):
    """What one scorer says in a blend."""

    scorer: str
    weight: FiniteFloat
    """For labels as rare as this one."""
    contribution: FiniteFloat
    """What it adds to the log-odds of the blend."""


class LabelExplanation(Answer):
    """Why a label was found."""

    tokens: TokenExplanation | None
    """What the text's tokens contribute; null where the sparse model does not know the label."""
    keywords: list[Keyword]
    """Tokens with a high weight for the label in the sparse model, the highest first."""
    nearest: list[NearLabel]
    """The most similar labels, the nearest first."""
    training_count: int
    """Number of training documents that carry it."""
    scores: list[ScoreExplanation]
    """One for every scorer of the model that can score the label."""
    name: FoundName | None
    """The label's name in the text; null where none was found, or the model looks for none."""
    documents: list[SimilarDocument]
    """Up to 3 training documents that are like the text and carry the label, the nearest first."""
    blend: list[BlendedScorer]
    """Of the scorers that the one asked for blends; empty where it blends none."""


class ScoredLabel(Answer):
    """One label and how well it fits."""

    id: str
    name: str
    score: FiniteFloat
    """Higher is better; comparable only within one scorer and aim."""
    probability: FiniteFloat | None
    """Probability that the label is right, where the scorer has one."""
    accepted: bool | None = None
    """Whether it goes through without a person, by the promise of the request; only where `accept`
    names one. A review does not change it."""
    scheme: str | None = None
    """The scheme that it was found in; only where the request has `schemes`."""
    rank_before: int | None = None
    """Its rank before the review, from 1; only in a reviewed answer, whose `score` and
    `probability` are those after it."""
    explanation: LabelExplanation | None = None
    """Why it was found; only where `explain` was asked for."""


class AnswerWarning(Answer):
    """What to know about an answer before relying on it."""

    code: WarningCode
    """The kind of warning; programs should compare this, not the words.

    `unreliable-probabilities`: the labels have at most one training document, and the
    probabilities that this scorer gives to such labels are often far too high. It concerns the
    labels that passed the `threshold`; where none was given, those of at least 0.5.

    `unlike-training`: the text is unlike the documents that the model was made for (far shorter
    or longer, with more unknown words, or without a similar training document), so that all
    probabilities may be far off. It names no labels. About 1 % of documents like those of the
    corpus get it."""
    detail: str
    """The warning in words, with what to do."""
    label_ids: list[str]
    """Ids of the labels that it concerns; empty where it concerns the text."""


class TextResult(Answer):
    """The labels of one text."""

    labels: list[ScoredLabel]
    """Best first; equal scores in the order of the label catalogue."""
    num_tokens: int
    """Tokens of the text that the scorer read: those of the encoder, special ones included; words
    for `sparse`. For a blend, those of its encoder."""
    num_text_tokens: int
    """Tokens of the whole text, counted in the same way."""
    known_tokens: int
    """How many of the tokens read are in the scorer's vocabulary: tokens of the encoder other than
    special and unknown ones; for `sparse` the distinct words and phrases that are its features;
    for `names` the distinct words that stand in names of labels; for a blend the larger number.
    Where it is 0, the labels say nothing about the text: they are those that the model gives to
    any text."""
    truncated: bool
    """Whether the text has more tokens than were read, so that its end was left out; in a blend,
    `sparse` still reads all of it."""
    exact: bool
    """Whether it is certain that no other label has a better score; false after a review, which
    orders the best labels only."""
    reviewed: bool | None = None
    """Whether the reviewer's scores count; only where a review was asked for."""
    review_failed: ReviewFailure | None = None
    """Why not: `not-fitted` (the version knows nothing of this reviewer, or of it with this scorer
    or so many labels), `reviewer-failed`, `reviewer-paused` (it gave no answer three times in a
    row), `time-limit`, `request-limit` (texts of one request), `daily-limit`, or `busy`. The answer
    is then the one without a review."""
    abstained: bool | None = None
    """Whether none of the labels is accepted; only where the request has `accept`."""
    abstained_because: Abstention | None = None
    """Why: `no-known-word`, `unlike-training` (see `warnings`) or `below-threshold`; only where
    `abstained` is true."""
    warnings: list[AnswerWarning] = Field([])
    """What to know about labels before relying on them; absent where there is nothing."""


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
