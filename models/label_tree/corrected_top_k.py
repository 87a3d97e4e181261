"""Inner products plus log p_n of a label tree as sources (Bamler & Mandt 2020, Eq. 5).

Either two sources, one of inner products and one of log p_n, for the Threshold Algorithm, which is
certified after it has scored few labels; or, of few labels and on a GPU, one source that scores all
of them: by two float32 products and a sum of log-probabilities level by level, which propose, and
float64, which decides. The labels and scores are the same, to the bit.

`TreeSource` finds labels in falling order of log p_n by a best-first search of each document with a
heap, on a CPU (`longtail.models.label_tree.kernels`).

`NearLogProbs` proposes: one product scores all nodes, and doubling the level's log-probabilities is
the sum along all paths. Its bound is absolute, in nats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor
from torch.nn.functional import logsigmoid

from longtail.models.label_tree.kernels import best_leaves
from longtail.models.label_tree.tree import LabelTree
from longtail.models.ranking.certified import largest, product_error
from longtail.models.ranking.device_rows import Found, has_kernels, memory_errors
from longtail.models.ranking.index import InnerProductIndex, InnerProductSource, ProductScores
from longtail.models.ranking.threshold_algorithm import SUM, search
from longtail.models.ranking.top_k import Ranking, Source, scores_all

MAX_LEAVES = {"cpu": 2**18, "cuda": 2**25}
"""Log-probabilities of leaves that are computed at a time; some six times as many float32 numbers
are held: 6 MiB, so that they stay in the processor's caches, or 800 MiB of a GPU."""
_ONE_SIDED = 1e4
"""Score of a node with padding on one side: the sigmoid of as little is 0 in float32. An infinite
one, as the tree has it, would give inf - inf."""


class NearLogProbs:
    """A tree's weights and biases for float32, on the tree's device."""

    def __init__(self, tree: LabelTree) -> None:
        """Copy the nodes; those with padding on one side get a finite score of their own."""
        forced = tree.biases.isinf()
        self._depth = tree.depth
        self._weights = tree.weights.masked_fill(forced[:, None], 0.0)
        self._biases = tree.biases.clamp(-_ONE_SIDED, _ONE_SIDED)
        scales = (
            self._weights.double().norm(dim=1),
            self._biases.double().masked_fill(forced, 0).abs(),
        )
        self._longest_weights, self._largest_biases = map(self._largest_sum, scales)

    def of(self, features: Float32[Tensor, "document k"]) -> Float32[Tensor, "document leaf"]:
        """Return log p_n of each leaf, from left to right, in nats, within `bounds`."""
        scores = torch.addmm(self._biases, features, self._weights.T)  # (document, node)
        right = logsigmoid(scores)
        left = right - scores  # log sigma(-s) = log sigma(s) - s
        reach = features.new_zeros((len(features), 1))
        for level in range(self._depth):
            nodes = slice(2**level - 1, 2 ** (level + 1) - 1)
            below = features.new_empty((len(features), 2 ** (level + 1)))
            torch.add(reach, left[:, nodes], out=below[:, ::2])
            torch.add(reach, right[:, nodes], out=below[:, 1::2])
            reach = below
        return reach

    def bounds(
        self, features: Float32[Tensor, "document k"]
    ) -> tuple[Float64[Tensor, document], Float64[Tensor, document]]:
        """Return what |log p_n| of no label exceeds, and how far `of` may be from the exact one.

        In nats, for each document. At a node, with the unit u = 2^-24: the score s = w·x + b is off
        by at most gamma (|w||x| + |b|) (Higham 2002, 3.1), and log sigma, whose slope is at most 1,
        by as much. Its own rounding, and that of left = right - s, is below 4u |s| + 8u, where
        PyTorch's exp and log1p are off by two units in the last place. Each of `depth` sums is off
        by u times the total, which is at most the sum of |s| + log 2 over the path. The sums of |w|
        and |b| over all paths are bounded by their largest, found once.
        """
        unit = 2.0**-24
        terms = features.shape[1] + 2
        gamma = terms * unit / (1 - terms * unit) + product_error()
        sizes = features.double().norm(dim=1) * self._longest_weights + self._largest_biases
        totals = sizes + self._depth * math.log(2)
        margins = sizes * (gamma + 4 * unit) + (8 + totals) * (unit * self._depth)
        return totals, torch.where(sizes < 2.0**127, margins, torch.inf)  # else one may overflow

    def _largest_sum(self, of_nodes: Float64[Tensor, node]) -> float:
        """Return the largest sum of a node's number over the paths to the leaves."""
        sums = of_nodes.new_zeros(1)
        for level in range(self._depth):
            sums = (sums + of_nodes[2**level - 1 : 2 ** (level + 1) - 1]).repeat_interleave(2)
        return float(sums.max())


class TreeSource:
    """The `Source` of log p_n of one batch of document vectors."""

    def __init__(self, tree: LabelTree, vectors: Float32[np.ndarray, "batch dim"]) -> None:
        """Bind the documents to the tree.

        Args:
            tree: On the CPU to be searched; on any device to score given labels.
            vectors: Document vectors as the tree was fitted to, not yet projected.
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

    @property
    def labels(self) -> Int64[np.ndarray, label]:
        """All labels."""
        return np.arange(self.num_labels, dtype=np.int64)

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


_FEW = 4
"""Queries, on a CPU, for which the Threshold Algorithm takes less time than to score all labels."""


class IndexCorrection:
    """A label tree on the device of an index, whose labels it corrects.

    Attributes:
        index: Label vectors.
        labels: The label of each row of the index, on the device.
        tree: Over all labels that are indexed at least.
    """

    def __init__(self, index: InnerProductIndex, tree: LabelTree) -> None:
        """Move the tree to the device of the index."""
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
        """Bind the documents to index and tree; the arguments are those of `corrected_sources`."""
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

    @property
    def labels(self) -> Int64[np.ndarray, covered]:
        """The indexed labels."""
        return self._index.labels

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
        num_rows: The index's number of rows.
        margins: How far a float32 sum of each query may lie from the exact score.
    """

    def __init__(
        self,
        correction: IndexCorrection,
        products: ProductScores,
        features: Float32[Tensor, "query k"],
    ) -> None:
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
