"""The scorers of document vectors: an inner-product index for each, and the tree that corrects one.

The indexed vector of a label y is [w_y, b_y, log pi_y] and the query [x, 1, -tau]: bias and label
prior are two more dimensions, so one index answers every tail dial tau, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.label_tree.corrected_top_k import corrected_sources
from longtail.models.label_tree.tree import LabelTree
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.names import CLASSIFIER, LINEAR, RETRIEVAL, CorrectionName
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.dense_parts import DenseParts
from longtail.models.predict.placement import Placement
from longtail.models.predict.scorer import Scorer, ScorerTraits
from longtail.models.ranking.index import InnerProductIndex, InnerProductSource
from longtail.models.ranking.threshold_algorithm import Sources
from longtail.models.results import Evidence, SparseParts
from longtail.models.scorers.linear import LinearModel


class VectorScorer:
    """Scores labels by inner products of document vectors with theirs, perhaps corrected."""

    def __init__(
        self,
        model: LinearModel,
        catalogue: LabelCatalogue,
        traits: ScorerTraits,
        tree: LabelTree | None,
        *,
        index_device: str,
    ) -> None:
        """Build the index.

        Args:
            model: A row for each label that it knows.
            catalogue: All labels.
            traits: What is known of it.
            tree: p_n(y|x), where its correction is "tree"; on the CPU, whose compiled walk no GPU
                was measured to beat.
            index_device: Where FAISS searches (see `InnerProductIndex`).

        Raises:
            DataError: A row is not finite.
            ConfigError: FAISS sees no such device, or its memory is too small.
        """
        self.traits = traits
        self._tree = tree
        vectors = _indexed(model, catalogue, traits.correction)
        self._index = InnerProductIndex(vectors, model.labels, device=index_device)

    @property
    def labels(self) -> Int64[np.ndarray, covered]:
        """The labels with a row."""
        return self._index.labels

    def sources(self, batch: TextBatch, correction: CorrectionName, tail_dial: float) -> Sources:
        """Return the inner products, and log p_n(y|x) where the tree corrects them.

        Raises:
            DataError: A vector is not finite.
        """
        queries = self._queries(batch.vectors, correction, tail_dial)
        if correction != "tree":
            return [InnerProductSource(self._index, queries)]
        assert self._tree is not None
        return corrected_sources(self._index, queries, self._tree, batch.vectors)

    def contributions(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, SparseParts]:
        """Return nothing: a vector has no tokens."""
        del batch, text, labels
        return {}

    def evidence(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, Evidence]:
        """Return nothing: a vector doesn't say why."""
        del batch, text, labels
        return {}

    def _queries(
        self,
        vectors: Float32[np.ndarray, "document dim"],
        correction: CorrectionName,
        tail_dial: float,
    ) -> Float32[np.ndarray, "document indexed"]:
        """Return [x, 1, -tau], and 1 more where the prior corrects."""
        num_more = self._index.vectors.shape[1] - vectors.shape[1]
        more = np.zeros((len(vectors), num_more), dtype=np.float32)
        more[:, :2] = 1, -tail_dial
        if correction == "prior":
            more[:, 2] = 1
        return np.hstack([vectors, more])


def make_dense(
    dense: DenseParts, catalogue: LabelCatalogue, placement: Placement
) -> dict[str, Scorer]:
    """Return the scorers of a model's dense half.

    Raises:
        DataError: A label vector is not finite.
        ConfigError: FAISS sees no such device, or its memory is too small.
    """
    linear = dense.linear
    tree = None if linear is None else linear.tree
    traits = {
        RETRIEVAL: ScorerTraits(reads="vector", gives_logits=True, compares_texts=True),
        CLASSIFIER: ScorerTraits(reads="vector", gives_logits=True),
        LINEAR: ScorerTraits(
            reads="vector", correction="none" if linear is None else linear.correction
        ),
    }
    return {
        name: VectorScorer(
            model, catalogue, traits[name], tree, index_device=placement.index_device
        )
        for name, model in _models(dense).items()
    }


def _indexed(
    model: LinearModel, catalogue: LabelCatalogue, correction: CorrectionName
) -> Float32[np.ndarray, "covered indexed"]:
    """Return [w_y, b_y, log pi_y], and one dimension more where the prior corrects: log p_n."""
    columns = [model.weight, model.bias, catalogue.log_priors[model.labels]]
    if correction == "prior":
        counts = catalogue.training_counts
        shares = counts[model.labels] / catalogue.num_training_pairs
        columns.append(np.log(shares).astype(np.float32))
    return np.column_stack(columns)


def _models(dense: DenseParts) -> dict[str, LinearModel]:
    """Return each dense scorer as inner products of document vectors with rows, plus biases."""
    scale = float(dense.encoder.log_scale.detach().exp())
    shift = float(dense.encoder.score_bias.detach())
    num_labels = len(dense.label_vectors)
    models = {
        RETRIEVAL: LinearModel(
            weight=np.float32(scale) * dense.label_vectors,
            bias=np.full(num_labels, shift, dtype=np.float32),
            labels=np.arange(num_labels, dtype=np.int64),
        )
    }
    if dense.classifier is not None:
        models[CLASSIFIER] = dense.classifier
    if dense.linear is not None:
        models[LINEAR] = dense.linear.model
    return models
