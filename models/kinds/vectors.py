"""The scorers of document vectors: an inner-product index for each, and the tree that corrects one.

The indexed vector of a label y is [w_y, b_y, log pi_y] and the query [x, 1, -tau]: bias and label
prior are two more dimensions, so one index answers every tail dial tau, exactly.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.kinds.scorer import Scorer
from longtail.models.label_tree.corrected_top_k import IndexCorrection, corrected_sources
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.names import CorrectionName, IndexName
from longtail.models.parts.batches import TextBatch
from longtail.models.ranking.index import InnerProductIndex, InnerProductSource
from longtail.models.ranking.threshold_algorithm import Sources
from longtail.models.ranking.top_k import ListedSource, best_listed
from longtail.models.scorers.linear import LinearModel, LinearScorer

NUM_LISTED = 100
"""Labels of a text that a blend takes from an encoder that was not fine-tuned."""


class VectorScorer(Scorer):
    """Scores labels by inner products of document vectors with theirs, perhaps corrected."""

    def __init__(
        self,
        linear: LinearScorer,
        catalogue: LabelCatalogue,
        *,
        index_device: str,
        index: IndexName = "torch",
    ) -> None:
        """Build the index.

        Args:
            linear: A row for each label that it knows, and its correction.
            catalogue: All labels.
            index_device: Where rows and label tree lie (see `InnerProductIndex`).
            index: What searches the rows.
        """
        self.correction = linear.correction
        vectors = _indexed(linear.model, catalogue, linear.correction)
        labels = linear.model.labels
        self._index = InnerProductIndex(vectors, labels, device=index_device, index=index)
        self.index_choice = self._index.choice
        self._tree = None if linear.tree is None else IndexCorrection(self._index, linear.tree)

    @property
    def labels(self) -> Int64[np.ndarray, covered]:
        """The labels with a row."""
        return self._index.labels

    def sources(self, batch: TextBatch, correction: CorrectionName, tail_dial: float) -> Sources:
        """Return the inner products, and log p_n(y|x) where the tree corrects them."""
        queries = self._queries(batch.vectors, correction, tail_dial)
        if correction != "tree":
            return [InnerProductSource(self._index, queries)]
        assert self._tree is not None
        return corrected_sources(self._tree, queries, batch.vectors)

    def prepare(self, batch: TextBatch) -> None:
        """Do nothing: it reads the encoder's vectors alone."""

    def known_tokens(self, batch: TextBatch, *, is_alone: bool) -> Int64[np.ndarray, text]:
        """Return the tokens that the encoder knows."""
        del is_alone
        return batch.tokens.num_known

    def _queries(
        self,
        vectors: Float32[np.ndarray, "document dim"],
        correction: CorrectionName,
        tail_dial: float,
    ) -> Float32[np.ndarray, "document indexed"]:
        """Return [x, 1, -tau], and 1 more where the prior corrects."""
        num_more = self._index.dim - vectors.shape[1]
        more = np.zeros((len(vectors), num_more), dtype=np.float32)
        more[:, :2] = 1, -tail_dial
        if correction == "prior":
            more[:, 2] = 1
        return np.hstack([vectors, more])


class ListingScorer(VectorScorer):
    """The same by an encoder that was not fine-tuned: blends take the `NUM_LISTED` best labels.

    Behind those, its scores add nothing to a blend; and blends of listed scores are ranked in one
    pass.
    """

    def member_sources(self, batch: TextBatch) -> Sources:
        """Return the inner products of the best labels."""
        whole = super().member_sources(batch)
        if len(whole) > 1:
            return whole
        best = batch.once(f"listed {id(self)}", lambda: best_listed(whole[0], NUM_LISTED))
        return [ListedSource(best)]


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
