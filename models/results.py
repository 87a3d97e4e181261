"""What a prediction is: labels with scores, and why. Needs no PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from longtail.models.labels.catalogue import Label
from longtail.models.names import Abstention, CorrectionName, ReviewFailure, WarningCode
from longtail.models.tables import frame_of, html_table


@dataclass(frozen=True, slots=True)
class TokenPart:
    """What a token of the text adds to the score of the sparse model.

    Attributes:
        token: A word or phrase as the sparse model knows it: lower-case.
        contribution: Its tf-idf in the text times its weight for the label.
        spans: Where it stands in the text, the first occurrences.
    """

    token: str
    contribution: float
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class SparseParts:
    """The terms that sum to a label's score, for a scorer of tokens.

    Attributes:
        tokens: Those that count most, for and against: the largest contribution first.
        rest: The sum of all other tokens.
        bias: What the label gets whatever the text.
    """

    tokens: tuple[TokenPart, ...]
    rest: float
    bias: float


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """Of what the score that a scorer gives to a label is the sum.

    Attributes:
        scorer: Its name.
        score: With the correction and the tail dial of the query, and without its aim; another
            scorer than the query's is corrected as it was trained.
        base: What it gives by itself.
        correction: What the correction adds.
        tail_dial: What the tail dial adds.
    """

    scorer: str
    score: float
    base: float
    correction: float
    tail_dial: float


Manner = Literal["phrase", "sentence", "partly"]
"""How a name stands in a text: its words in their order; all of them in one sentence; or some."""


@dataclass(frozen=True, slots=True)
class NameMatch:
    """A name of a label that was found in a text.

    Attributes:
        name: As it is written in the label file.
        is_own_name: Whether it is the label's own name rather than another one.
        manner: How it stands there.
        count: How often as a phrase, or else in how many sentences; 0 where only some words do.
        in_title: Whether all of its words are in the title: the first line, or first sentence.
    """

    name: str
    is_own_name: bool
    manner: Manner
    count: int
    in_title: bool


@dataclass(frozen=True, slots=True)
class BlendPart:
    """What a scorer says of a label in a blend.

    Attributes:
        scorer: Its name.
        weight: For labels as rare as this one.
        contribution: What it adds to the sum that the blend makes log-odds of, in nats.
    """

    scorer: str
    weight: float
    contribution: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What of a text, and of the training documents, speaks for a label.

    Attributes:
        name: The name that was found; None where none was, or the model doesn't look for names.
        documents: Similar training documents that carry the label, the nearest first.
        blend: Of the scorers that the query's scorer blends; empty where it blends none.
    """

    name: NameMatch | None = None
    documents: tuple[CarryingDocument, ...] = ()
    blend: tuple[BlendPart, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a text got a label.

    Attributes:
        sparse: What its tokens say; None where the sparse model does not know the label.
        keywords: What the sparse model knows the label by, the largest weight first.
        nearest: Labels that are like it, the nearest first.
        training_count: Training documents that carry it.
        scores: Of every scorer that knows it.
        evidence: The name that was found, the documents that carry it, the blend.
    """

    sparse: SparseParts | None
    keywords: tuple[Keyword, ...]
    nearest: tuple[NearLabel, ...]
    training_count: int
    scores: tuple[ScoreParts, ...]
    evidence: Evidence = Evidence()

    def _repr_html_(self) -> str:
        """Return what speaks for the label, as a notebook shows it."""
        return html_table(("what", "which", "how much"), self._rows())

    def _rows(self) -> Iterator[tuple[str, str, float | None]]:
        yield from (("score", part.scorer, part.score) for part in self.scores)
        yield from (
            (f"weight {part.weight:.4f} in the blend", part.scorer, part.contribution)
            for part in self.evidence.blend
        )
        if self.evidence.name is not None:
            yield f"name, as {self.evidence.name.manner}", self.evidence.name.name, None
        if self.sparse is not None:
            yield from (("token", part.token, part.contribution) for part in self.sparse.tokens)
        documents = self.evidence.documents
        yield from (("training document", x.document_id, x.similarity) for x in documents)
        yield "training documents with the label", str(self.training_count), None


@dataclass(frozen=True, slots=True)
class CarryingDocument:
    """A training document near to a text, which carries a label of it.

    Attributes:
        document_id: As the corpus has it.
        similarity: Cosine of the tf-idf of text and document.
        share: Of what all neighbours that carry the label count for together; 1 if it is the only
            one.
    """

    document_id: str
    similarity: float
    share: float


@dataclass(frozen=True, slots=True)
class Keyword:
    """A token by which the sparse model knows a label, and its weight."""

    token: str
    weight: float


@dataclass(frozen=True, slots=True)
class NearLabel:
    """A label that is like another one.

    Attributes:
        index: Its row in the catalogue.
        id: The caller's identifier.
        name: What people read.
        similarity: Cosine of the two labels' retrieval vectors, or of their sparse weights where
            the model has no encoder.
    """

    index: int
    id: str
    name: str
    similarity: float


@dataclass(frozen=True, slots=True)
class LabelDetails:
    """All that is known of a label.

    Attributes:
        index: Its row in the catalogue.
        label: What the catalogue says.
        keywords: What the sparse model knows it by, the largest weight first.
        nearest: Labels that are like it, the nearest first.
        scorers: Those that can give it a score.
    """

    index: int
    label: Label
    keywords: tuple[Keyword, ...]
    nearest: tuple[NearLabel, ...]
    scorers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LabelScore:
    """A label of a text.

    Attributes:
        index: Its row in the catalogue.
        id: The caller's identifier.
        name: What people read.
        score: What labels are ordered by, correction and tail dial included; with an aim other than
            precision, the label's gain. Comparable only within one scorer, correction, tail dial
            and aim.
        probability: That the text carries the label, as calibrated on the dev split; where nothing
            was calibrated, the model's own estimate. None where the scorer has neither, and where
            the tail dial or another correction has changed the scores.
        accepted: Whether it goes through without a person, by the promise of the query; None where
            the query has none.
        scheme: The scheme that it was asked for as a label of; None where the query names none.
    """

    index: int
    id: str
    name: str
    score: float
    probability: float | None
    accepted: bool | None = None
    scheme: str | None = None


@dataclass(frozen=True, slots=True)
class Familiarity:
    """How much a text is like those that the model learned from.

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


@dataclass(frozen=True, slots=True)
class Review:
    """What became of the review of a text.

    Attributes:
        failure: Why it was not reviewed; None where it was.
        ranks_before: Of each label, its rank before the review, from 1; empty without a review.
    """

    failure: ReviewFailure | None = None
    ranks_before: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """The labels of one text, best first.

    Attributes:
        labels: At most k; fewer where a threshold or the scorer's own labels leave no more.
        num_tokens: Tokens that the scorer has read: the encoder's with its special ones, words for
            `sparse`. A blend counts as its encoder does.
        truncated: Whether the text has more tokens (`num_text_tokens`), so that its end was left
            out; of a blend, for those of its scorers that read by the encoder.
        exact: Whether no other label can have a better score. Every way of ranking that there is
            certifies that before it answers.
        correction: What was added to the scores.
        num_text_tokens: Tokens that the text has.
        known_tokens: How much of what was read the scorer's vocabulary knows: the encoder's tokens
            but for special and unknown ones; for `sparse`, different words and phrases with a
            feature; for `names`, different words that stand in a label's name; for a blend, the
            larger number, and at least 1 where it finds a name.
            With 0 the labels say nothing about the text.
        explanations: Why, of each label; empty where none were requested.
        warnings: What to know about labels before relying on them: that their probabilities are
            often too high (see `longtail.models.scorers.reliability`), or that the text is unlike
            those that the model was made for (see `longtail.models.scorers.familiar_range`).
        familiarity: How much the text is like those that the model learned from; None where nobody
            looked.
        abstained_because: Why the query's promise accepts none of the labels; None where it accepts
            one, or the query has no promise.
        review: What became of its review; None where nobody asked for one.
    """

    labels: tuple[LabelScore, ...]
    num_tokens: int
    truncated: bool
    exact: bool
    correction: CorrectionName
    num_text_tokens: int
    known_tokens: int
    explanations: tuple[Explanation, ...] = ()
    warnings: tuple[AnswerWarning, ...] = ()
    familiarity: Familiarity | None = None
    abstained_because: Abstention | None = None
    review: Review | None = None

    def __iter__(self) -> Iterator[LabelScore]:
        """Give the labels, best first."""
        return iter(self.labels)

    def __repr__(self) -> str:
        """Return the labels' names with their probabilities, or else their scores."""
        return f"Prediction({', '.join(map(_named, self.labels)) or 'no label'})"

    def _repr_html_(self) -> str:
        """Return the labels as a notebook shows them."""
        return html_table(LABEL_COLUMNS, map(cells_of, range(1, len(self.labels) + 1), self.labels))

    def to_frame(self) -> Any:
        """Return a `pandas.DataFrame`: a row for each label (see `LABEL_COLUMNS`).

        Raises:
            ConfigError: pandas is not installed.
        """
        rows = [cells_of(rank, label) for rank, label in enumerate(self.labels, 1)]
        return frame_of({name: [x[i] for x in rows] for i, name in enumerate(LABEL_COLUMNS)})


LABEL_COLUMNS = ("rank", "id", "name", "probability", "score")
"""Of tables of labels; the best has rank 1."""


def cells_of(rank: int, label: LabelScore) -> tuple[int, str, str, float | None, float]:
    """Return what stands in the `LABEL_COLUMNS` for a label."""
    return rank, label.id, label.name, label.probability, label.score


def _named(label: LabelScore) -> str:
    value = label.score if label.probability is None else label.probability
    return f"{label.name} {value:.3f}"


def with_explanations(
    predictions: Iterable[Prediction], explained: Iterable[tuple[Explanation, ...]]
) -> list[Prediction]:
    """Return predictions with the explanations of their labels."""
    return [
        replace(prediction, explanations=explanations)
        for prediction, explanations in zip(predictions, explained, strict=True)
    ]


UNRELIABLE_PROBABILITIES: WarningCode = "unreliable-probabilities"
UNLIKE_TRAINING: WarningCode = "unlike-training"


@dataclass(frozen=True, slots=True)
class AnswerWarning:
    """What to know about an answer before relying on it.

    Attributes:
        code: The kind, for programs.
        detail: In words.
        label_ids: The labels that it is about; none where it is about the text.
    """

    code: WarningCode
    detail: str
    label_ids: tuple[str, ...]


Span = tuple[int, int]
"""First character, and the one behind the last; characters are Unicode code points."""
