"""The scorers `retrieval`, `classifier` and `linear`: rows of labels, scored by document vectors.

Their models are part of the dense half, which is stored with its encoder
(`longtail.models.parts.dense_storage`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from longtail.models.kinds.placement import Placement
from longtail.models.kinds.scorer import Scorer, ScorerKind
from longtail.models.names import CLASSIFIER, LINEAR, RETRIEVAL
from longtail.models.parts.model_parts import ModelParts

if TYPE_CHECKING:  # brings PyTorch, which is loaded where a model has a dense half
    from longtail.models.scorers.linear import LinearScorer


class _DenseKind(ScorerKind):
    """A scorer of document vectors."""

    needs_encoder = True

    def make(self, model: LinearScorer, parts: ModelParts, placement: Placement) -> Scorer:
        """Return the scorer with its index; FAISS and PyTorch are loaded.

        Raises:
            DataError: A row is not finite.
            ConfigError: FAISS sees no such device, or its memory is too small.
        """
        from longtail.models.kinds.vectors import VectorScorer

        return VectorScorer(model, parts.catalogue, index_device=placement.index_device)


class RetrievalKind(_DenseKind):
    """Inner products with the vectors of label texts, scaled and shifted as in training."""

    name = RETRIEVAL
    gives_logits = True
    compares_texts = True
    scores_new_labels = True

    def model_of(self, parts: ModelParts) -> LinearScorer | None:
        """Return the scaled label vectors."""
        if (dense := parts.dense) is None:
            return None
        from longtail.models.scorers.linear import LinearModel, LinearScorer

        scale = float(dense.encoder.log_scale.detach().exp())
        shift = float(dense.encoder.score_bias.detach())
        num_labels = len(dense.label_vectors)
        model = LinearModel(
            weight=np.float32(scale) * dense.label_vectors,
            bias=np.full(num_labels, shift, dtype=np.float32),
            labels=np.arange(num_labels, dtype=np.int64),
        )
        return LinearScorer(model, "none")


class ClassifierKind(_DenseKind):
    """The dense classifier that the dual encoder started from."""

    name = CLASSIFIER
    gives_logits = True

    def model_of(self, parts: ModelParts) -> LinearScorer | None:
        """Return its rows, where the run kept them."""
        if parts.dense is None or parts.dense.classifier is None:
            return None
        from longtail.models.scorers.linear import LinearScorer

        return LinearScorer(parts.dense.classifier, "none")


class LinearKind(_DenseKind):
    """The linear scorer with its correction."""

    name = LINEAR

    def model_of(self, parts: ModelParts) -> LinearScorer | None:
        """Return its rows, where the run trained them."""
        return None if parts.dense is None else parts.dense.linear
