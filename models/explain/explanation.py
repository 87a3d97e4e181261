"""Why a text got a label: what its tokens say, what the label is known by, what each scorer gives.

The parts add up: those of a score to the score, and the tokens' contributions with the bias to the
score of the sparse model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Float32, Float64, Int64

from models.explain.label_facts import FindNearest, LabelFacts, entries_of, row_of
from models.explain.spans import spans_of
from models.parts.batches import TextBatch
from models.parts.model_parts import ModelParts
from models.ranking.top_k import NO_LABEL
from models.results import Explanation, ScoreParts, SparseParts, TokenPart

NUM_TOKENS_FOR = 10
"""Tokens that speak for a label, at most."""
NUM_TOKENS_AGAINST = 5
"""Tokens that speak against it, at most."""
MOST_SPANS = 50
"""Places of one token that are told."""
_Labels: TypeAlias = Int64[np.ndarray, "text m"]
_Scores: TypeAlias = Float32[np.ndarray, "text m"]


@runtime_checkable  # the test run checks annotations by isinstance
class Scoring(Protocol):
    """Gives the scores that are explained; `models.predict.predictor.Predictor` does."""

    @property
    def scorers(self) -> tuple[str, ...]:
        """All of them."""
        ...

    def score(
        self,
        batch: TextBatch,
        labels: _Labels,
        scorer: str | None = None,
        correction: str | None = None,
        tail_dial: float = 0.0,
    ) -> _Scores:
        """Return scores of given labels; -inf for those that the scorer does not know."""
        ...


class Explainer:
    """Explains why texts got labels."""

    def __init__(self, parts: ModelParts, facts: LabelFacts) -> None:
        self._sparse = parts.sparse
        self._facts = facts

    def explain(
        self,
        scoring: Scoring,
        batch: TextBatch,
        labels: Sequence[Sequence[int]],
        scorer: str,
        correction: str | None,
        tail_dial: float,
        nearest: FindNearest | None = None,
    ) -> list[tuple[Explanation, ...]]:
        """Return an explanation for each label of each text.

        Args:
            scoring: Who gave the labels.
            batch: The texts.
            labels: The labels of each.
            scorer: What they were ranked by.
            correction: As the query had it.
            tail_dial: As the query had it.
            nearest: Gives the labels that are like others; None: among these labels.
        """
        padded = _padded(labels)
        asked = {scorer: correction}
        scores = [
            _score_parts(scoring, batch, padded, name, asked.get(name), tail_dial)
            for name in scoring.scorers
        ]
        distinct = list(dict.fromkeys(label for row in labels for label in row))
        near = (nearest or self._facts.nearest)(distinct)
        nearest_of = dict(zip(distinct, near, strict=True))
        keywords = {label: self._facts.keywords(label) for label in distinct}
        explanations = []
        for row, found in enumerate(labels):
            sparse = self._sparse_parts(batch, row, found)
            explanations.append(
                tuple(
                    Explanation(
                        sparse=sparse.get(label),
                        keywords=keywords[label],
                        nearest=nearest_of[label],
                        training_count=self._facts.catalogue[label].training_count,
                        scores=tuple(filter(None, (each[row][place] for each in scores))),
                    )
                    for place, label in enumerate(found)
                )
            )
        return explanations

    def _sparse_parts(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> dict[int, SparseParts]:
        """Return what the tokens of a text say about each label that the sparse model knows."""
        model, tokens = self._sparse, self._sparse.tfidf.tokens
        rows = {label: row for label in labels if (row := row_of(model, label)) is not None}
        contributions = {
            label: self._contributions(batch, text, row) for label, row in rows.items()
        }
        telling = {label: _most_telling(*each) for label, each in contributions.items()}
        wanted = {tokens[column] for each in telling.values() for column, _ in each}
        spans = spans_of(batch.texts[text], model.tfidf, wanted) if wanted else {}
        return {
            label: SparseParts(
                tokens=tuple(
                    TokenPart(tokens[column], value, tuple(spans[tokens[column]][:MOST_SPANS]))
                    for column, value in telling[label]
                ),
                rest=float(contributions[label][1].sum()) - sum(x for _, x in telling[label]),
                bias=float(model.bias[row]),
            )
            for label, row in rows.items()
        }

    def _contributions(
        self, batch: TextBatch, text: int, row: int
    ) -> tuple[Int64[np.ndarray, shared], Float64[np.ndarray, shared]]:
        """Return the features that a text and a row share, and tf-idf times weight of each."""
        columns, values = entries_of(batch.features, text)
        known, weights = entries_of(self._sparse.weights, row)
        shared, ours, theirs = np.intersect1d(
            columns, known, assume_unique=True, return_indices=True
        )
        products = values[ours].astype(np.float64) * weights[theirs].astype(np.float64)
        return shared.astype(np.int64), products


def _most_telling(
    columns: Int64[np.ndarray, shared], values: Float64[np.ndarray, shared]
) -> list[tuple[int, float]]:
    """Return the features that count most, for and against, the largest value first."""
    order = np.lexsort((columns, -values))
    in_order = [(int(columns[place]), float(values[place])) for place in order]
    speaking_for = [each for each in in_order if each[1] > 0][:NUM_TOKENS_FOR]
    against = [each for each in in_order if each[1] < 0][-NUM_TOKENS_AGAINST:]
    return speaking_for + against


def _score_parts(
    scoring: Scoring,
    batch: TextBatch,
    labels: _Labels,
    scorer: str,
    correction: str | None,
    tail_dial: float,
) -> list[list[ScoreParts | None]]:
    """Return the parts of a scorer's score of each label: what each step changes."""
    base = scoring.score(batch, labels, scorer, "none").astype(np.float64)
    corrected = scoring.score(batch, labels, scorer, correction).astype(np.float64)
    dialled = corrected
    if tail_dial:
        dialled = scoring.score(batch, labels, scorer, correction, tail_dial).astype(np.float64)
    return [
        [
            ScoreParts(scorer, last, first, second - first, last - second)
            if np.isfinite((first, second, last)).all()
            else None
            for first, second, last in zip(*steps, strict=True)
        ]
        for steps in zip(base.tolist(), corrected.tolist(), dialled.tolist(), strict=True)
    ]


def _padded(labels: Sequence[Sequence[int]]) -> _Labels:
    padded = np.full((len(labels), max(map(len, labels), default=0)), NO_LABEL, dtype=np.int64)
    for row, found in enumerate(labels):
        padded[row, : len(found)] = found
    return padded
