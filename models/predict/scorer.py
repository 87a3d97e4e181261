"""What a scorer is: the one interface between a way to score labels and all that ranks by it.

To add one, write a file beside this one with a class of this shape and a function that makes it of
a model's parts, and name that function in `longtail.models.predict.scorer_set.MAKERS`. Which parts
a bundle must have for it is said, by its name, in
`longtail.models.parts.model_parts.ModelParts.scorers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64

from longtail.models.names import CorrectionName
from longtail.models.parts.batches import Reading, TextBatch
from longtail.models.ranking.threshold_algorithm import Sources
from longtail.models.results import Evidence, SparseParts


@dataclass(frozen=True, slots=True)
class ScorerTraits:
    """What is known of a scorer before it has read anything.

    Attributes:
        reads: What it reads of a text.
        correction: What it was trained to be corrected with; "none" if it was trained without.
        gives_logits: Whether its scores are log-odds as its training's cross-entropy fits them, so
            that their sigmoid is a probability where none was calibrated.
        compares_texts: Whether it compares a text with the label's own, whether or not the label
            was ever right, so that it is overconfident (see `longtail.models.scorers.reliability`).
    """

    reads: Reading
    correction: CorrectionName = "none"
    gives_logits: bool = False
    compares_texts: bool = False


@runtime_checkable  # the test run checks annotations by isinstance
class Scorer(Protocol):
    """Scores the labels that it knows."""

    @property
    def traits(self) -> ScorerTraits:
        """What is known of it before it has read anything."""
        ...

    @property
    def labels(self) -> Int64[np.ndarray, covered]:
        """The labels that it can score, rising."""
        ...

    def sources(self, batch: TextBatch, correction: CorrectionName, tail_dial: float) -> Sources:
        """Return what its scores of these texts are the sums of.

        Args:
            batch: The texts.
            correction: "none", or that of its traits.
            tail_dial: tau, at least 0.
        """
        ...

    def contributions(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, SparseParts]:
        """Return what the tokens of one text add to the scores of labels.

        Args:
            batch: The texts.
            text: Number of one of them.
            labels: Of which those without an entry in the answer can't be explained by tokens.
        """
        ...

    def evidence(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, Evidence]:
        """Return what of a text, and of training documents, speaks for labels, where it can say.

        Args:
            batch: The texts.
            text: Number of one of them.
            labels: Of the catalogue.
        """
        ...
