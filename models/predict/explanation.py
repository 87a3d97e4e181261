"""Explanations of labels: contributions of tokens, facts about labels, scores of the scorers.

The parts of a score add up to the score. The tokens' contributions and the bias add up to the score
of the scorer that reads tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Int64

from longtail.models.explain import LabelFacts
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.scorer_set import ScorerSet
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.results import LabelExplanation, ScoreExplanation

_Labels: TypeAlias = Int64[np.ndarray, "text m"]


def explain(
    scoring: ScorerSet,
    facts: LabelFacts,
    batch: TextBatch,
    labels: Sequence[Sequence[int]],
    scorer: str,
    options: RankingOptions,
) -> list[tuple[LabelExplanation, ...]]:
    """Return an explanation for each label of each text.

    Args:
        scoring: The scorers of the model.
        facts: Facts about the labels that don't depend on the text.
        batch: The texts.
        labels: The labels of each text.
        scorer: The scorer that ranked them.
        options: Options of the query. Other scorers use the correction that they were trained with.
    """
    padded = _padded(labels)
    scores = [
        _score_parts(
            scoring,
            batch,
            padded,
            name,
            options.correction if name == scorer else None,
            options.tail_dial,
        )
        for name in scoring.names
    ]
    distinct = list(dict.fromkeys(label for row in labels for label in row))
    nearest_of = dict(zip(distinct, facts.nearest(distinct), strict=True))
    keywords = dict(zip(distinct, facts.keywords(distinct), strict=True))
    evidence = scoring.evidence(batch, padded, options)
    explanations = []
    for row, of_text in enumerate(labels):
        tokens = scoring.contributions(batch, row, of_text)
        explanations.append(
            tuple(
                LabelExplanation(
                    tokens=tokens.get(label),
                    keywords=keywords[label],
                    nearest=nearest_of[label],
                    training_count=facts.catalogue[label].training_count,
                    scores=tuple(filter(None, (parts[row][column] for parts in scores))),
                    name=found.name,
                    documents=found.documents,
                    blend=found.blend,
                )
                for column, (label, found) in enumerate(zip(of_text, evidence[row], strict=False))
            )
        )
    return explanations


def _score_parts(
    scoring: ScorerSet,
    batch: TextBatch,
    labels: _Labels,
    scorer: str,
    correction: str | None,
    tail_dial: float,
) -> list[list[ScoreExplanation | None]]:
    """Return the parts of a scorer's score of each label: what each step changes."""
    steps = [("none", 0.0), (correction, 0.0), (correction, tail_dial)]
    scores = [
        scoring.score(
            batch, labels, RankingOptions(k=1, scorer=scorer, correction=added, tail_dial=dial)
        ).astype(np.float64)
        for added, dial in steps[: 3 if tail_dial else 2]
    ]
    base, corrected, dialled = scores[0], scores[1], scores[-1]
    return [
        [
            ScoreExplanation(scorer, last, first, second - first, last - second)
            if np.isfinite((first, second, last)).all()
            else None
            for first, second, last in zip(*rows, strict=True)
        ]
        for rows in zip(base.tolist(), corrected.tolist(), dialled.tolist(), strict=True)
    ]


def _padded(labels: Sequence[Sequence[int]]) -> _Labels:
    padded = np.full((len(labels), max(map(len, labels), default=0)), NO_LABEL, dtype=np.int64)
    for row, of_text in enumerate(labels):
        padded[row, : len(of_text)] = of_text
    return padded
