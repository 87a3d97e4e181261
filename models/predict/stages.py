"""Answers of a cascade: each text by one of two scorers, exactly as that scorer answers alone.

Which of them it is depends on the text alone, and not on what the query asks of the labels, so a
text that is asked about twice gets its labels from the same scorer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from jaxtyping import Int64

from longtail.models.names import PRECISION, STAGES
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.scorer_set import ScorerSet
from longtail.models.ranking.top_k import Ranking
from longtail.models.scorers.calibration import IDENTITY, log_odds_of
from longtail.models.scorers.cascade import CascadeRule

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StageTexts:
    """The texts of a batch that one stage answers.

    Attributes:
        rows: Their places in the batch, rising.
        batch: They alone.
        options: Of the query, with the stage as their scorer.
        ranking: The answer, where it is there already.
    """

    rows: Int64[np.ndarray, row]
    batch: TextBatch
    options: RankingOptions
    ranking: Ranking | None = None


class Stages:
    """The two scorers of a cascade: who answers which text."""

    def __init__(self, rule: CascadeRule, scorers: ScorerSet) -> None:
        """Keep both.

        Args:
            rule: Says which texts the first stage answers.
            scorers: Of the model; the stages are among them.
        """
        self._rule = rule
        self._scorers = scorers

    def divide(self, batch: TextBatch, options: RankingOptions) -> Iterator[StageTexts]:
        """Give the texts of each stage that has some; no vector is made.

        Args:
            batch: The texts; where there are none, they are the first stage's.
            options: Of the query; the scorer plays no part.

        Yields:
            The first stage's, and the second's.

        Raises:
            RequestError: k is more than there are labels.
        """
        first, second = (replace(options, scorer=stage) for stage in STAGES)
        if not batch.texts:
            yield StageTexts(np.arange(0), batch, first)
            return
        least = options.k if _is_plain(options) else 1
        k = max(least, min(self._rule.num_labels, self._scorers.num_labels))
        ranking = self._scorers.rank(batch, RankingOptions(k=k, scorer=first.scorer))
        calibration = self._scorers.calibration_of(STAGES[0]) or IDENTITY
        log_odds = log_odds_of(calibration, ranking.scores[:, : self._rule.num_labels])
        is_first = self._rule.is_answered(log_odds)
        if is_first.any():
            rows = np.flatnonzero(is_first)
            known = ranking.of_rows(rows).first(options.k) if _is_plain(options) else None
            yield StageTexts(rows, _taken(batch, rows), first, known)
        if not is_first.all():
            rows = np.flatnonzero(~is_first)
            yield StageTexts(rows, _taken(batch, rows), second)


def in_order(parts: Sequence[StageTexts], answers: Sequence[Sequence[T]]) -> list[T]:
    """Return the answers about the texts of a batch in its order.

    Args:
        parts: What `Stages.divide` gave.
        answers: About the texts of each.
    """
    numbered = [
        (row, answer)
        for part, own in zip(parts, answers, strict=True)
        for row, answer in zip(part.rows.tolist(), own, strict=True)
    ]
    return [answer for _, answer in sorted(numbered, key=lambda each: each[0])]


def _is_plain(options: RankingOptions) -> bool:
    """Whether a query is ranked by the score alone, over all labels."""
    return (
        options.label_filter is None
        and options.aim in (None, PRECISION)
        and options.tail_dial == 0
        and options.correction in (None, "none")
    )


def _taken(batch: TextBatch, rows: Int64[np.ndarray, row]) -> TextBatch:
    return batch if len(rows) == len(batch.texts) else batch.take(rows.tolist())
