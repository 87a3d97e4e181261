"""What scores document vectors: one inner-product index a scorer, and the tree that corrects one.

The indexed vector of a label y is [w_y, b_y, log pi_y] and the query [x, 1, -tau]: bias and label
prior are two more dimensions, so one index answers every tail dial tau, exactly.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32

from models.corrected_ranking import rank_corrected
from models.index import InnerProductIndex, InnerProductSource
from models.labels import LabelCatalogue
from models.linear import LinearModel
from models.manifest import CorrectionName
from models.parts import CLASSIFIER, LINEAR, RETRIEVAL, DenseParts
from models.ranking import Ranking, rank


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
    ) -> Ranking:
        """Return the exact k best labels of documents.

        Args:
            vectors: phi_doc of each.
            k: At least 1.
            scorer: One of the model's dense scorers.
            correction: "none", or that of the linear scorer.
            tail_dial: tau, at least 0.

        Raises:
            DataError: A vector is not finite, and the tree is to correct its scores.
        """
        index = self._indexes[scorer]
        num_more = index.vectors.shape[1] - vectors.shape[1]
        more = np.zeros((len(vectors), num_more), dtype=np.float32)
        more[:, :2] = 1, -tail_dial
        if correction == "prior":
            more[:, 2] = 1
        queries = np.hstack([vectors, more])
        if correction != "tree":
            return rank([InnerProductSource(index, queries)], k)
        assert self._tree is not None
        return rank_corrected(index, queries, self._tree, vectors, k)

    def _indexed(
        self, model: LinearModel, correction: CorrectionName
    ) -> Float32[np.ndarray, "covered indexed"]:
        """Return [w_y, b_y, log pi_y], and one dimension more where the prior corrects: log p_n."""
        columns = [model.weight, model.bias, self._catalogue.log_priors[model.labels]]
        if correction == "prior":
            counts = self._catalogue.training_counts
            columns.append(np.log(counts[model.labels] / counts.sum()).astype(np.float32))
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
