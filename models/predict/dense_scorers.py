"""What scores document vectors: one inner-product index a scorer, and the tree that corrects one.

The indexed vector of a label y is [w_y, b_y, log pi_y] and the query [x, 1, -tau]: bias and label
prior are two more dimensions, so one index answers every tail dial tau, exactly.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64

from models.label_tree.corrected_top_k import rank_corrected
from models.label_tree.search import TreeSource
from models.labels.catalogue import LabelCatalogue
from models.labels.filters import Selection
from models.names import CLASSIFIER, LINEAR, RETRIEVAL, CorrectionName
from models.parts.model_parts import DenseParts
from models.ranking.filtered import rank_selected, total_scores
from models.ranking.index import InnerProductIndex, InnerProductSource
from models.ranking.top_k import Ranking, Source
from models.scorers.linear import LinearModel


class DenseScorers:
    """The scorers of a model's dense half, ready to rank."""

    def __init__(
        self, dense: DenseParts, catalogue: LabelCatalogue, *, device: str, index_device: str
    ) -> None:
        """Build the indexes.

        Args:
            dense: The dense half.
            catalogue: The labels.
            device: Where the tree searches: "cpu" or "cuda".
            index_device: Where FAISS does (see `InnerProductIndex`).

        Raises:
            ConfigError: FAISS sees no such device.
        """
        self._catalogue = catalogue
        linear = dense.linear
        self.linear_correction: CorrectionName = "none" if linear is None else linear.correction
        tree = None if linear is None else linear.tree
        self._tree = None if tree is None else tree.to(device)
        self._indexes = {
            name: InnerProductIndex(
                self._indexed(model, self.linear_correction if name == LINEAR else "none"),
                model.labels,
                device=index_device,
            )
            for name, model in _models(dense).items()
        }

    def rank(
        self,
        vectors: Float32[np.ndarray, "document dim"],
        k: int,
        scorer: str,
        correction: CorrectionName,
        tail_dial: float,
        selection: Selection | None = None,
    ) -> Ranking:
        """Return the exact k best labels of documents.

        Args:
            vectors: phi_doc of each.
            k: At least 1.
            scorer: One of the model's dense scorers.
            correction: "none", or that of the linear scorer.
            tail_dial: tau, at least 0.
            selection: Whose labels may be returned; None: all.

        Raises:
            DataError: A vector is not finite, and the tree is to correct its scores.
        """
        if correction == "tree" and selection is None and len(self._indexes[scorer]):
            assert self._tree is not None
            queries = self._queries(vectors, scorer, correction, tail_dial)
            return rank_corrected(self._indexes[scorer], queries, self._tree, vectors, k)
        return rank_selected(self.sources(vectors, scorer, correction, tail_dial), k, selection)

    def score(
        self,
        vectors: Float32[np.ndarray, "document dim"],
        labels: Int64[np.ndarray, "document m"],
        scorer: str,
        correction: CorrectionName,
        tail_dial: float,
    ) -> Float32[np.ndarray, "document m"]:
        """Return the scores of given labels, to the bit those of `rank`.

        Args:
            vectors: As for `rank`.
            labels: Of each document; those without a row in the scorer get -inf.
            scorer: As for `rank`.
            correction: As for `rank`.
            tail_dial: As for `rank`.

        Raises:
            DataError: As `rank` does.
        """
        rows = np.arange(len(vectors), dtype=np.int64)
        return total_scores(self.sources(vectors, scorer, correction, tail_dial), rows, labels)

    def labels_of(self, scorer: str) -> Int64[np.ndarray, covered]:
        """Return the labels that a scorer can score, rising."""
        return self._indexes[scorer].labels

    def sources(
        self,
        vectors: Float32[np.ndarray, "document dim"],
        scorer: str,
        correction: CorrectionName,
        tail_dial: float,
    ) -> list[Source]:
        """Return what the scores of a scorer are the sums of."""
        queries = self._queries(vectors, scorer, correction, tail_dial)
        sources: list[Source] = [InnerProductSource(self._indexes[scorer], queries)]
        if correction == "tree" and len(self._indexes[scorer]):  # else there is nothing to correct
            assert self._tree is not None
            sources.append(TreeSource(self._tree, vectors))
        return sources

    def _queries(
        self,
        vectors: Float32[np.ndarray, "document dim"],
        scorer: str,
        correction: CorrectionName,
        tail_dial: float,
    ) -> Float32[np.ndarray, "document indexed"]:
        """Return [x, 1, -tau], and 1 more where the prior corrects."""
        num_more = self._indexes[scorer].vectors.shape[1] - vectors.shape[1]
        more = np.zeros((len(vectors), num_more), dtype=np.float32)
        more[:, :2] = 1, -tail_dial
        if correction == "prior":
            more[:, 2] = 1
        return np.hstack([vectors, more])

    def _indexed(
        self, model: LinearModel, correction: CorrectionName
    ) -> Float32[np.ndarray, "covered indexed"]:
        """Return [w_y, b_y, log pi_y], and one dimension more where the prior corrects: log p_n."""
        columns = [model.weight, model.bias, self._catalogue.log_priors[model.labels]]
        if correction == "prior":
            counts = self._catalogue.training_counts
            shares = counts[model.labels] / self._catalogue.whole.num_training_pairs
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
