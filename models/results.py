"""Predictions: labels with scores and reasons, also as tables and data frames. Needs no PyTorch.

The service answers with these classes: `longtail.service.schemas` publishes them. Fields without a
default are in every answer, those with one where they have another value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field

from longtail.models.extras import require
from longtail.models.names import CorrectionName

Abstention = Literal["no-known-word", "unlike-training", "below-threshold"]
"""Why no label of a text is accepted: the model knows none of its words; the text is unlike the
documents of the corpus; or no label reaches the threshold of the promise."""


def html_table(headings: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return a table in HTML; whatever is in the cells is text and never markup.

    Args:
        headings: The columns' headings.
        rows: Cells in the order of the columns; None is an empty cell, and numbers with a decimal
            point have four digits behind it.
        caption: What is above.
    """
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(shown(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def shown(cell: object) -> str:
    """Return a cell as people read it."""
    if cell is None:
        return ""
    return f"{cell:.4f}" if isinstance(cell, float) else str(cell)


def frame_of(columns: Mapping[str, Sequence[object]]) -> Any:
    """Return a `pandas.DataFrame`.

    Args:
        columns: By their names, all of one length.
    """
    require("pandas", "a data frame")
    import pandas

    return pandas.DataFrame(dict(columns))


ANSWER = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
"""Fields are described by their docstrings."""
_UNSENT = Field(exclude=True)
Span: TypeAlias = tuple[int, int]
"""First character, and the one behind the last; characters are Unicode code points."""


class AnswerPart:
    """Base of the parts of an answer."""

    __slots__ = ()
    __pydantic_config__ = ANSWER


@dataclass(frozen=True, slots=True)
class TokenContribution(AnswerPart):
    """What a token of the text adds to the score of the sparse model."""

    token: str
    """A word or phrase as the sparse model knows it: lower-case."""
    contribution: float
    """Its tf-idf in the text times its weight for the label; below 0 it is against the label."""
    spans: tuple[Span, ...]
    """Where it occurs in the text, up to 50 times: its first character, and the one after its
    last. Characters are Unicode code points; in JavaScript, those of `Array.from(text)`."""


@dataclass(frozen=True, slots=True)
class TokenExplanation(AnswerPart):
    """The parts of which the sparse model's score of a label is the sum."""

    tokens: tuple[TokenContribution, ...]
    """Up to 10 that speak for the label and 5 against it, the largest contribution first."""
    rest: float
    """The sum of all other tokens."""
    bias: float
    """Added for every text."""


@dataclass(frozen=True, slots=True)
class ScoreExplanation(AnswerPart):
    """How one scorer scores a label: `base`, `correction` and `tail_dial` add up to `score`."""

    scorer: str
    score: float
    """Higher is better; comparable only within one scorer. Scorers other than the one asked for are
    corrected as they were trained. An aim is no part of it."""
    base: float
    correction: float
    """What the correction adds."""
    tail_dial: float
    """What the tail dial (logit adjustment at query time) adds."""


Manner = Literal["phrase", "sentence", "partly"]
"""How a name occurs in a text: its words in their order; all of them in one sentence; or some."""


@dataclass(frozen=True, slots=True)
class FoundName(AnswerPart):
    """A name of the label that was found in the text."""

    name: str
    is_own_name: bool
    """False: it is another name of the label."""
    manner: Manner
    """Its words in their order; all of them in one sentence; or some of them."""
    count: int
    """How often as a phrase, or else in how many sentences; 0 where only some words are there."""
    in_title: bool
    """Whether all its words are in the first line, or first sentence."""


@dataclass(frozen=True, slots=True)
class SimilarDocument(AnswerPart):
    """A training document that is like the text and carries the label."""

    id: str
    similarity: float
    """Cosine of the two texts' tf-idf."""
    share: float
    """Its part of the weight of all similar documents with the label."""


@dataclass(frozen=True, slots=True)
class BlendedScorer(AnswerPart):
    """What one scorer says in a blend."""

    scorer: str
    weight: float
    """For labels as rare as this one."""
    contribution: float
    """What it adds to the log-odds of the blend."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What of a text, and of the training documents, speaks for a label, as scorers tell it."""

    name: FoundName | None = None
    documents: tuple[SimilarDocument, ...] = ()
    blend: tuple[BlendedScorer, ...] = ()


@dataclass(frozen=True, slots=True)
class Keyword(AnswerPart):
    """A token with a high weight for a label in the sparse model."""

    token: str
    weight: float


@dataclass(frozen=True, slots=True)
class NearLabel(AnswerPart):
    """A label that is similar to another one."""

    id: str
    name: str
    similarity: float
    """Cosine of the labels' vectors; of their sparse weights where the model has no encoder."""


@dataclass(frozen=True, slots=True)
class LabelExplanation(AnswerPart):
    """Why a label was found."""

    tokens: TokenExplanation | None
    """What the text's tokens contribute; null where the sparse model does not know the label."""
    keywords: tuple[Keyword, ...]
    """Tokens with a high weight for the label in the sparse model, the highest first."""
    nearest: tuple[NearLabel, ...]
    """The most similar labels, the nearest first."""
    training_count: int
    """Number of training documents that carry it."""
    scores: tuple[ScoreExplanation, ...]
    """One for every scorer of the model that can score the label."""
    name: FoundName | None
    """The label's name in the text; null where none was found, or the model looks for none."""
    documents: tuple[SimilarDocument, ...]
    """Up to 3 training documents that are like the text and carry the label, the nearest first."""
    blend: tuple[BlendedScorer, ...]
    """One entry for each blended scorer; empty where the scorer is not a blend."""

    def _repr_html_(self) -> str:
        """Return what speaks for the label, as a notebook shows it."""
        return html_table(("what", "which", "how much"), self._rows())

    def _rows(self) -> Iterator[tuple[str, str, float | None]]:
        yield from (("score", part.scorer, part.score) for part in self.scores)
        yield from (
            (f"weight {part.weight:.4f} in the blend", part.scorer, part.contribution)
            for part in self.blend
        )
        if self.name is not None:
            yield f"name, as {self.name.manner}", self.name.name, None
        if self.tokens is not None:
            yield from (("token", part.token, part.contribution) for part in self.tokens.tokens)
        yield from (("training document", x.id, x.similarity) for x in self.documents)
        yield "training documents with the label", str(self.training_count), None


@dataclass(frozen=True, slots=True)
class ScoredLabel(AnswerPart):
    """One label and how well it fits."""

    id: str
    name: str
    score: float
    """Higher is better; comparable only within one scorer and aim."""
    probability: float | None
    """Probability that the label is right, where the scorer has one."""
    accepted: bool | None = None
    """Whether it goes through without a person, by the promise of the request; only where `accept`
    names one."""
    scheme: str | None = None
    """The scheme that it was found in; only where the request has `schemes`."""
    explanation: LabelExplanation | None = None
    """Why it was found; only where `explain` was asked for."""
    index: Annotated[int, _UNSENT] = -1
    """Its row in the catalogue of the model; -1 in the answer of a service."""


@dataclass(frozen=True, slots=True)
class Familiarity:
    """How similar a text is to the training documents.

    Attributes:
        num_words: Words of the text, as the sparse model counts them; in scripts without spaces,
            characters.
        known_words: How many of them are in the vocabulary of the sparse model.
        nearest_similarity: Cosine of the tf-idf of the text and of the nearest training document;
            None where the scorer did not look for it.
    """

    num_words: int
    known_words: int
    nearest_similarity: float | None


UNRELIABLE_PROBABILITIES = "unreliable-probabilities"
UNLIKE_TRAINING = "unlike-training"
FEW_KNOWN_WORDS = "few-known-words"


@dataclass(frozen=True, slots=True)
class AnswerWarning(AnswerPart):
    """What to know about an answer before relying on it."""

    code: str
    """The kind of warning; programs should compare this, not the words. Fitted parts of other
    packages may have kinds of their own.

    `unreliable-probabilities`: the labels have at most one training document, and the
    probabilities that this scorer gives to such labels are often far too high. It concerns the
    labels that passed the `threshold`; where none was given, those of at least 0.5.

    `unlike-training`: the text is unlike the documents that the model was made for (far shorter
    or longer, with more unknown words, or without a similar training document), so that all
    probabilities may be far off. It names no labels. About 1 % of documents like those of the
    corpus get it.

    `few-known-words`: less than half of the words are known to a model that had too few documents
    for the former. It names no labels, and nothing abstains for it."""
    detail: str
    """The warning in words, with what to do."""
    label_ids: tuple[str, ...]
    """Ids of the labels that it concerns; empty where it concerns the text."""


@dataclass(frozen=True, slots=True, repr=False)
class Prediction(AnswerPart):
    """The labels of one text."""

    labels: tuple[ScoredLabel, ...]
    """Best first; equal scores in the order of the label catalogue."""
    num_tokens: int
    """Tokens of the text that the scorer read: those of the encoder, special ones included; words
    for `sparse`. For a blend, those of its encoder."""
    num_text_tokens: int
    """Tokens of the whole text, counted in the same way."""
    known_tokens: int
    """How many of the tokens read are in the scorer's vocabulary: tokens of the encoder other than
    special and unknown ones; for `sparse` the distinct words and phrases that are its features;
    for `names` the distinct words that are in names of labels; for a blend the larger number.
    Where it is 0, the labels say nothing about the text: they are those that the model gives to
    any text."""
    truncated: bool
    """Whether the text has more tokens than were read, so that its end was left out; in a blend,
    `sparse` still reads all of it."""
    exact: bool
    """Whether it is certain that no other label has a better score."""
    abstained: bool | None = None
    """Whether none of the labels is accepted; only where the request has `accept`."""
    abstained_because: Abstention | None = None
    """Why: `no-known-word`, `unlike-training` (see `warnings`) or `below-threshold`; only where
    `abstained` is true."""
    warnings: tuple[AnswerWarning, ...] = ()
    """What to know about labels before relying on them; absent where there is nothing."""
    correction: Annotated[CorrectionName, _UNSENT] = "none"
    """What was added to the scores."""
    familiarity: Annotated[Familiarity | None, _UNSENT] = None
    """How similar the text is to the training documents; None where it was not computed."""

    def __iter__(self) -> Iterator[ScoredLabel]:
        """Give the labels, best first."""
        return iter(self.labels)

    def __repr__(self) -> str:
        """Return the labels' names with their probabilities, or else their scores."""
        return f"Prediction({', '.join(map(_named, self.labels)) or 'no label'})"

    def _repr_html_(self) -> str:
        """Return the labels as a notebook shows them."""
        return html_table(LABEL_COLUMNS, map(cells_of, range(1, len(self.labels) + 1), self.labels))

    def to_frame(self) -> Any:
        """Return a `pandas.DataFrame`: a row for each label (see `LABEL_COLUMNS`)."""
        rows = [cells_of(rank, label) for rank, label in enumerate(self.labels, 1)]
        return frame_of({name: [x[i] for x in rows] for i, name in enumerate(LABEL_COLUMNS)})


LABEL_COLUMNS = ("rank", "id", "name", "probability", "score")
"""Columns of tables of labels; the best label has rank 1."""


def cells_of(rank: int, label: ScoredLabel) -> tuple[int, str, str, float | None, float]:
    """Return what is in the `LABEL_COLUMNS` for a label."""
    return rank, label.id, label.name, label.probability, label.score


def _named(label: ScoredLabel) -> str:
    value = label.score if label.probability is None else label.probability
    return f"{label.name} {value:.3f}"


def with_explanations(
    predictions: Iterable[Prediction], explained: Iterable[Sequence[LabelExplanation]]
) -> list[Prediction]:
    """Return predictions with the explanations of their labels."""
    return [
        replace(prediction, labels=tuple(map(_explained, prediction.labels, explanations)))
        for prediction, explanations in zip(predictions, explained, strict=True)
    ]


def _explained(label: ScoredLabel, why: LabelExplanation) -> ScoredLabel:
    return replace(label, explanation=why)
