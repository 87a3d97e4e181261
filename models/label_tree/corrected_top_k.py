"""Inner products plus log p_n of a label tree as sources (Bamler & Mandt 2020, Eq. 5).

Either two sources, one of inner products and one of log p_n, for the Threshold Algorithm, which is
certified after it has scored few labels; or, of few labels and on a GPU, one source that scores all
of them: by two float32 products and a sum of log-probabilities level by level, which propose, and
float64, which decides. The labels and scores are the same, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from longtail.models.label_tree.near_log_probs import MAX_LEAVES, NearLogProbs
from longtail.models.label_tree.search import TreeSource
from longtail.models.label_tree.tree import LabelTree
from longtail.models.ranking.certified import largest
from longtail.models.ranking.device_rows import Found, has_kernels, memory_errors
from longtail.models.ranking.exhaustive import scores_all
from longtail.models.ranking.index import InnerProductIndex, InnerProductSource, ProductScores
from longtail.models.ranking.threshold_algorithm import SUM, search
from longtail.models.ranking.top_k import Ranking, Source

_FEW = 4
"""Queries, on a CPU, for which the Threshold Algorithm takes less time than to score all labels."""


class IndexCorrection:
    """A label tree on the device of an index, whose labels it corrects.

    Attributes:
        index: Label vectors.
        labels: Of each row of the index, on the device.
        tree: Over all labels that are indexed at least.
    """

    def __init__(self, index: InnerProductIndex, tree: LabelTree) -> None:
        """Move the tree to the device of the index.

        Raises:
            ConfigError: The GPU's memory is too small for it.
        """
        self.index = index
        self.labels = torch.from_numpy(index.labels).to(index.device)
        with memory_errors(f"a label tree of {tree.num_labels} labels"):
            self.tree = tree.to(index.device)

    @cached_property
    def near(self) -> NearLogProbs:
        """Its log-probabilities by float32."""
        return NearLogProbs(self.tree)

    @cached_property
    def leaves(self) -> Int64[Tensor, row]:
        """The leaf of each row of the index."""
        return self.tree.leaf_of_label[self.labels]


def corrected_sources(
    correction: IndexCorrection,
    queries: Float32[np.ndarray, "batch indexed"],
    vectors: Float32[np.ndarray, "batch dim"],
) -> Sequence[Source]:
    """Return the sources of corrected scores.

    A score is the inner product of query and indexed vector, rounded to float32, plus log p_n(y|x),
    rounded to float32, and that sum again.

    Args:
        correction: Label vectors and tree.
        queries: What the label vectors are multiplied with.
        vectors: The same documents, as the tree reads them.

    Raises:
        DataError: A vector is not finite.
    """
    index = correction.index
    if len(index) == 0:
        return [InnerProductSource(index, queries)]  # there is nothing to correct
    if not has_kernels(index.device) or scores_all(len(index), len(index), by_matrix=True):
        return [CorrectedSource(correction, queries, vectors)]
    return [InnerProductSource(index, queries), TreeSource(correction.tree, vectors)]


class CorrectedSource:
    """The `Source` of corrected scores, which scores all labels of more than a few queries."""

    def __init__(
        self,
        correction: IndexCorrection,
        queries: Float32[np.ndarray, "batch indexed"],
        vectors: Float32[np.ndarray, "batch dim"],
    ) -> None:
        """Bind the documents to index and tree; the arguments are those of `corrected_sources`.

        Raises:
            DataError: A vector is not finite.
        """
        self._index, self._correction = correction.index, correction
        self._queries = queries
        self._products = InnerProductSource(self._index, queries)
        self._log_probs = TreeSource(correction.tree, vectors)

    @property
    def num_queries(self) -> int:
        """Rows of the batch."""
        return len(self._queries)

    @property
    def num_labels(self) -> int:
        """Number of indexed labels."""
        return len(self._index)

    def top(self, rows: Int64[np.ndarray, row], m: int) -> Ranking:
        """Return the m best labels of these queries (see `Source.top`)."""
        if len(rows) <= _FEW and has_kernels(self._index.device):
            return search([[self._products, self._log_probs]], SUM, m, rows)
        products = self._index.scores(self._queries[rows])
        features = self._log_probs.features_of(rows)
        return self._index.best(CorrectedScores(self._correction, products, features), m)

    def score(
        self, rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of given labels (see `Source.score`)."""
        products = self._products.score(rows, labels)
        scores: Float32[np.ndarray, "row m"] = products + self._log_probs.score(rows, labels)
        return scores


class CorrectedScores:
    """Corrected scores of all rows of an index for some queries (see `Scores`).

    Attributes:
        num_rows: Of the index.
        margins: How far a float32 sum of each query may lie from the exact score.
    """

    def __init__(
        self,
        correction: IndexCorrection,
        products: ProductScores,
        features: Float32[Tensor, "query k"],
    ) -> None:
        """Take the products of queries, and what the tree reads of them."""
        self._tree, self._near = correction.tree, correction.near
        self._leaves, self._labels = correction.leaves, correction.labels
        self._products, self._features = products, features
        self.num_rows = products.num_rows
        totals, margins = self._near.bounds(features)
        totals = totals + products.sizes
        # Either sum is rounded once, by at most 2^-24 of what it can be, which may overflow too.
        margins = margins + products.margins + totals * 2.0**-23
        self.margins = torch.where(totals < 2.0**127, margins, torch.inf)

    def propose(self, queries: Int64[Tensor, asked], m: int) -> Found:
        """Return the m largest sums (see `Scores.propose`)."""
        size = max(self.num_rows, self._tree.label_of_leaf.shape[0])
        parts = torch.split(queries, max(1, MAX_LEAVES[self.margins.device.type] // size))
        found = [largest(self._totals(part), m) for part in parts]
        return torch.cat([x for x, _ in found]), torch.cat([x for _, x in found])

    def exact(
        self, queries: Int64[Tensor, asked], rows: Int64[Tensor, "asked m"]
    ) -> Float32[Tensor, "asked m"]:
        """Return the exact scores of given rows (see `Scores.exact`)."""
        log_probs = self._tree.log_prob(self._features[queries], self._labels[rows])
        return self._products.exact(queries, rows) + log_probs

    def _totals(self, queries: Int64[Tensor, asked]) -> Float32[Tensor, "asked row"]:
        log_probs = self._near.of(self._features[queries])
        return self._products.products(queries).add_(log_probs.index_select(1, self._leaves))
