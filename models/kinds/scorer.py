"""What a scorer is: one object for how it is stored and read, one that ranks and explains.

To add a scorer, write a `ScorerKind` with its `Scorer` in one file, and what fits it
(`longtail.training.fitting`) in another; register both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from longtail.models.kinds.placement import Placement
from longtail.models.labels.catalogue import Label
from longtail.models.names import CorrectionName
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.ranking.threshold_algorithm import Sources
from longtail.models.ranking.top_k import IndexChoice
from longtail.models.results import Evidence, TokenExplanation
from longtail.models.scorers.sparse import SparseModel


class Scorer(ABC):
    """Scores the labels that it knows. By default it reads the tf-idf features of texts.

    Attributes:
        correction: What it was trained to be corrected with; "none" if it was trained without.
        index_choice: What searches its label vectors; None: it has none.
    """

    correction: CorrectionName = "none"
    index_choice: IndexChoice | None = None

    @property
    @abstractmethod
    def labels(self) -> Int64[np.ndarray, covered]:
        """The labels that it can score, rising."""

    @abstractmethod
    def sources(self, batch: TextBatch, correction: CorrectionName, tail_dial: float) -> Sources:
        """Return what its scores of these texts are the sums of.

        Args:
            batch: The texts.
            correction: "none", or its own.
            tail_dial: tau, at least 0.
        """

    def member_sources(self, batch: TextBatch) -> Sources:
        """Return the sources of its scores in a blend: by default all, with its own correction."""
        return self.sources(batch, self.correction, 0.0)

    def prepare(self, batch: TextBatch) -> None:
        """Read what it needs of the texts, but for what an encoder reads."""
        batch.prepare_features()

    def known_tokens(self, batch: TextBatch, *, is_alone: bool) -> Int64[np.ndarray, text]:
        """Return how much of each text its vocabulary knows; 0: its scores say nothing.

        Args:
            batch: The texts.
            is_alone: Whether no other scorer reads them. In a blend, the largest number counts.
        """
        del is_alone
        return batch.num_known_features

    def contributions(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, TokenExplanation]:
        """Return what the tokens of one text add to the scores of labels; by default nothing.

        Args:
            batch: The texts.
            text: Number of one of them.
            labels: The labels; those without an entry in the answer can't be explained by tokens.
        """
        del batch, text, labels
        return {}

    def evidence(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, Evidence]:
        """Return the evidence in a text and in training documents for labels; by default none."""
        del batch, text, labels
        return {}


class ScorerKind(ABC):
    """How the model of one scorer is stored and read, with properties known before reading.

    Attributes:
        name: Name of the scorer, and of its model in `ModelParts.models`.
        needs_encoder: Whether it scores the vectors of texts.
        may_find_nothing: Whether it lists only labels that it finds, which may be none.
        keeps_documents: Whether its model holds the words of training documents, so that it is
            refused where these are confidential.
        gives_logits: Whether its scores are log-odds as its training's cross-entropy fits them, so
            that their sigmoid is a probability where none was calibrated.
        compares_texts: Whether it compares a text with the label's own, whether or not the label
            was ever right, so that it is overconfident (see `longtail.models.scorers.reliability`).
        scores_new_labels: Whether it can score labels that no training document carries.
        mapped: Arrays of its model that stay in their file (see `Bundle.tensors`).
    """

    name: str
    needs_encoder: bool = False
    may_find_nothing: bool = False
    keeps_documents: bool = False
    gives_logits: bool = False
    compares_texts: bool = False
    scores_new_labels: bool = False
    mapped: tuple[str, ...] = ()

    def model_of(self, parts: ModelParts) -> Any:
        """Return what it scores by; None where the parts lack it."""
        return parts.models.get(self.name)

    @property
    def file(self) -> str:
        """The file of its arrays in a bundle."""
        return f"{self.name}.safetensors"

    def arrays(self, model: Any) -> dict[str, np.ndarray]:
        """Return the arrays of a model, by name; by default none."""
        del model
        return {}

    def texts(self, model: Any) -> dict[str, str]:
        """Return the text files of a model, whose names begin with its own; by default none."""
        del model
        return {}

    def read(
        self,
        arrays: Mapping[str, np.ndarray],
        texts: Mapping[str, str],
        sparse: SparseModel,
        num_labels: int,
    ) -> Any:
        """Return the model of these files, for `ModelParts.models`.

        By default None: the model is part of the sparse model or the dense half.

        Args:
            arrays: What `arrays` gave, unless a file is damaged.
            texts: What `texts` gave, likewise.
            sparse: The sparse model, whose features the scorer may read.
            num_labels: Labels of the catalogue; some may have been added since the training.
        """
        del arrays, texts, sparse, num_labels

    @abstractmethod
    def make(self, model: Any, parts: ModelParts, placement: Placement) -> Scorer:
        """Return the scorer, ready to rank."""

    def with_labels(self, model: Any, labels: Sequence[Label]) -> Any:
        """Return a model that knows more labels, where it scores new ones; by default the same.

        Args:
            model: An entry of `ModelParts.models`.
            labels: With all their names; they come after the others.
        """
        del labels
        return model

    def without_documents(self, model: Any, is_unseen: Bool[np.ndarray, label]) -> Any:
        """Return a model as if no document had carried some labels; by default the same."""
        del is_unseen
        return model
