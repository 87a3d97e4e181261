"""Labels in falling order of log p_n under the label tree, by best-first search.

The search is a `Source` of `longtail.models.ranking.top_k`: the tree's side of scores corrected by
log p_n (Bamler & Mandt 2020, Eq. 5). `longtail.models.label_tree.kernels` searches for each
document with a heap, on a CPU; on a GPU all labels are scored instead.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from longtail.models.label_tree.kernels import best_leaves
from longtail.models.label_tree.tree import LabelTree
from longtail.models.ranking.top_k import Ranking


class TreeSource:
    """The `Source` of log p_n of one batch of document vectors."""

    def __init__(self, tree: LabelTree, vectors: Float32[np.ndarray, "batch dim"]) -> None:
        """Bind the documents to the tree.

        Args:
            tree: On the CPU to be searched; on any device to score given labels.
            vectors: Document vectors as the tree was fitted to, not yet projected.

        Raises:
            DataError: A vector is not finite.
        """
        self._tree = tree
        self._features = tree.project(torch.from_numpy(vectors).to(tree.weights.device))

    @property
    def num_queries(self) -> int:
        """Rows of the batch."""
        return len(self._features)

    @property
    def num_labels(self) -> int:
        """Number of labels C."""
        return self._tree.num_labels

    def top(self, rows: Int64[np.ndarray, row], m: int) -> Ranking:
        """Return the m best labels of these queries (see `Source.top`)."""
        features = self._features.numpy()[rows]
        label_of_leaf = self._tree.label_of_leaf.numpy()
        return Ranking(*best_leaves(self._tree.nodes, label_of_leaf, features, m))

    def score(
        self, rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of given labels (see `Source.score`)."""
        features = self.features_of(rows)
        log_probs = self._tree.log_prob(features, torch.from_numpy(labels).to(features.device))
        scores: Float32[np.ndarray, "row m"] = log_probs.cpu().numpy()
        return scores

    def features_of(self, rows: Int64[np.ndarray, row]) -> Float32[Tensor, "row k"]:
        """Return what the tree reads of these queries: their projected vectors."""
        return self._features[torch.from_numpy(rows).to(self._features.device)]
