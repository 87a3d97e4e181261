"""The scorer `sparse`: linear scores of tf-idf features, which can be explained token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.explain import entries_of, token_contributions
from longtail.models.kinds.placement import Placement
from longtail.models.kinds.scorer import Scorer, ScorerKind
from longtail.models.names import SPARSE, CorrectionName
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.parts.sparse_storage import MAPPED, arrays_of_sparse, texts_of_sparse
from longtail.models.ranking.threshold_algorithm import Sources
from longtail.models.results import TokenExplanation
from longtail.models.scorers.sparse import SparseModel, SparseSource


class SparseScorer(Scorer):
    """Scores labels by the sparse model."""

    def __init__(
        self, model: SparseModel, log_priors: Float32[np.ndarray, label], num_threads: int
    ) -> None:
        """Take the model.

        Args:
            model: The classifiers.
            log_priors: log pi of each label of the catalogue, in nats.
            num_threads: That rank many texts at the same time.
        """
        self._model = model
        self._log_priors = log_priors
        self._num_threads = num_threads

    @property
    def labels(self) -> Int64[np.ndarray, covered]:
        """The labels with a classifier."""
        return self._model.labels

    def sources(self, batch: TextBatch, correction: CorrectionName, tail_dial: float) -> Sources:
        """Return the source of its scores; the tail dial is part of the labels' biases."""
        assert correction == "none"
        model, bias, threads = self._model, None, self._num_threads
        if tail_dial:
            # b_y - tau log pi_y, in float64, rounded once
            log_priors = self._log_priors[model.labels].astype(np.float64)
            bias = (model.bias - tail_dial * log_priors).astype(np.float32)
        return [
            SparseSource(model, batch.feature_rows, bias=bias, num_threads=threads, sums=batch.sums)
        ]

    def contributions(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, TokenExplanation]:
        """Return what the tokens of a text add to the scores of labels."""
        features = entries_of(batch.feature_rows, text)
        return token_contributions(self._model, batch.texts[text], features, labels)


class SparseKind(ScorerKind):
    """The sparse model, which every model has: its features are what other scorers read, too."""

    name = SPARSE
    mapped = MAPPED

    def model_of(self, parts: ModelParts) -> SparseModel:
        """Return the sparse model."""
        return parts.sparse

    def arrays(self, model: SparseModel) -> dict[str, np.ndarray]:
        """Return its weights and idf."""
        return arrays_of_sparse(model)

    def texts(self, model: SparseModel) -> dict[str, str]:
        """Return its vocabulary."""
        return texts_of_sparse(model)

    def make(self, model: SparseModel, parts: ModelParts, placement: Placement) -> Scorer:
        """Return the scorer."""
        return SparseScorer(model, parts.catalogue.log_priors, placement.num_threads)
