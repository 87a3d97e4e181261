"""Labels in falling order of log p_n under the label tree, by best-first search.

The search is a `Source` of `longtail.models.ranking.top_k`: the tree's side of scores corrected by
log p_n (Bamler & Mandt 2020, Eq. 5). On a CPU `longtail.models.label_tree.kernels` searches for
each document with a heap; `BestFirstSearch` goes level by level for a whole batch, as a GPU wants
it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor
from torch.nn.functional import pad

from longtail.models.label_tree.arrays import depth_of
from longtail.models.label_tree.kernels import best_leaves
from longtail.models.label_tree.tree import LabelTree
from longtail.models.ranking.top_k import Ranking, top_of_candidates

_MAX_ENTRIES = 2**20  # entries of frontiers at a time: opening all of them takes some 128 MiB


class BestFirstSearch:
    """Labels in falling order of p_n, for a batch of documents, found as they are asked for.

    Best-first search: the log-probability of coming to a node bounds that of every leaf below it.
    Nodes among the m best entries of a document's frontier are opened until these are all leaves.
    The frontier is kept, so asking for more goes on from there.
    """

    def __init__(self, tree: LabelTree, features: Float32[Tensor, "row k"]) -> None:
        """Start at the root; nothing is searched yet.

        Args:
            tree: What to search.
            features: From its `project`.
        """
        self._tree = tree
        self._features = features
        shape = (len(features), 1)
        self._nodes = torch.zeros(shape, dtype=torch.int64, device=features.device)
        self._bounds = torch.zeros(shape, dtype=torch.float64, device=features.device)

    def keep(self, rows: Int64[Tensor, kept]) -> BestFirstSearch:
        """Return a search that goes on for these rows, from where they are."""
        kept = BestFirstSearch(self._tree, self._features[rows])
        kept._nodes, kept._bounds = self._nodes[rows], self._bounds[rows]
        return kept

    def top(self, m: int) -> Ranking:
        """Return the m labels of largest log p_n, exact; equal float32 values by smaller index."""
        if self._nodes.shape[1] == 1:
            self._start_at(min(self._tree.depth, depth_of(m)))
        is_best, rounded = self._best(m)
        while bool((to_open := is_best & self._is_inner()).any()):
            self._open(to_open)
            is_best, rounded = self._best(m)
        width = int(is_best.sum(1).max()) if len(is_best) else 0
        scores, columns = torch.where(is_best, rounded, -math.inf).topk(width, dim=1)
        leaves = self._nodes.gather(1, columns) - len(self._tree.biases)
        labels = self._tree.label_of_leaf[leaves.clamp(min=0)]
        return top_of_candidates(labels.cpu().numpy(), scores.cpu().numpy(), m)

    def _start_at(self, level: int) -> None:
        """Open all nodes above a level at once: about as many as will be among the best anyway."""
        self._bounds = self._tree.log_reach(self._features, level)
        first = 2**level - 1
        nodes = torch.arange(first, 2 * first + 1, device=self._bounds.device)
        self._nodes = nodes.expand(self._bounds.shape)
        self._bounds = self._without_others(self._nodes, self._bounds)

    def _best(self, m: int) -> tuple[Bool[Tensor, "row entry"], Float32[Tensor, "row entry"]]:
        """Return which entries are at least the m-th best in float32, and all in float32.

        A node that equals the m-th is one of them: a leaf below it may have a smaller index.
        """
        rounded = self._bounds.float()
        least = rounded.topk(min(m, rounded.shape[1]), dim=1).values[:, -1:]
        return (rounded >= least) & (rounded > -math.inf), rounded

    def _is_inner(self) -> Bool[Tensor, "row entry"]:
        return self._nodes < len(self._tree.biases)

    def _open(self, to_open: Bool[Tensor, "row entry"]) -> None:
        """Replace a node by its left child, and put its right child behind other entries."""
        rows, columns = to_open.nonzero(as_tuple=True)
        parents = self._nodes[rows, columns]
        decisions = self._tree.log_decisions(self._features.index_select(0, rows), parents)
        bounds = self._bounds[rows, columns].unsqueeze(1) + decisions
        width = self._nodes.shape[1]
        behind = width - 1 + to_open.cumsum(1)[rows, columns]  # each opened entry's new column
        room = (0, int(behind.max()) + 1 - width)
        self._nodes = pad(self._nodes, room)
        self._bounds = pad(self._bounds, room, value=-math.inf)
        children = torch.stack([2 * parents + 1, 2 * parents + 2], dim=1)
        bounds = self._without_others(children, bounds)
        self._nodes[rows, columns], self._nodes[rows, behind] = children[:, 0], children[:, 1]
        self._bounds[rows, columns], self._bounds[rows, behind] = bounds[:, 0], bounds[:, 1]

    def _without_others(
        self, nodes: Int64[Tensor, "#row entry"], bounds: Float64[Tensor, "row entry"]
    ) -> Float64[Tensor, "row entry"]:
        """Return the bounds, -inf for leaves without a label."""
        leaves = nodes - len(self._tree.biases)
        labels = self._tree.label_of_leaf[leaves.clamp(min=0)]
        return bounds.masked_fill((leaves >= 0) & (labels < 0), -math.inf)


class TreeSource:
    """The `Source` of log p_n of one batch of document vectors.

    On a GPU, what a call has searched is kept for the next one where that asks for the same rows or
    some of them, as `longtail.models.ranking.threshold_algorithm.rank` does. So a source serves one
    thread at a time.
    """

    def __init__(self, tree: LabelTree, vectors: Float32[np.ndarray, "batch dim"]) -> None:
        """Bind the documents to the tree.

        Args:
            tree: On the device that is to search.
            vectors: Document vectors as the tree was fitted to, not yet projected.

        Raises:
            DataError: A vector is not finite.
        """
        self._tree = tree
        self._device = tree.weights.device
        self._features = tree.project(torch.from_numpy(vectors).to(self._device))
        self._rows = np.empty(0, dtype=np.int64)
        self._search = BestFirstSearch(tree, self._features[:0])

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
        if self._tree.uses_kernels:
            features = self._features.numpy()[rows]
            label_of_leaf = self._tree.label_of_leaf.numpy()
            return Ranking(*best_leaves(self._tree.nodes, label_of_leaf, features, m))
        most = 2 * len(self._tree.label_of_leaf)
        at_a_time = max(1, _MAX_ENTRIES // min(m * (self._tree.depth + 1), most))
        parts = [
            self._search_for(rows[start : start + at_a_time]).top(m)
            for start in range(0, max(1, len(rows)), at_a_time)
        ]
        return Ranking(
            labels=np.concatenate([part.labels for part in parts]),
            scores=np.concatenate([part.scores for part in parts]),
        )

    def score(
        self, rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of given labels (see `Source.score`)."""
        log_probs = self._tree.log_prob(
            self.features_of(rows), torch.from_numpy(labels).to(self._device)
        )
        scores: Float32[np.ndarray, "row m"] = log_probs.cpu().numpy()
        return scores

    def features_of(self, rows: Int64[np.ndarray, row]) -> Float32[Tensor, "row k"]:
        """Return what the tree reads of these queries: their projected vectors."""
        return self._features[torch.from_numpy(rows).to(self._device)]

    def _search_for(self, rows: Int64[np.ndarray, row]) -> BestFirstSearch:
        """Return a search for these rows: the one before, where it was for all of them."""
        order = np.argsort(self._rows, kind="stable")
        position = np.searchsorted(self._rows, rows, sorter=order)
        earlier = order[np.minimum(position, len(order) - 1)] if len(order) else position
        if len(order) and (self._rows[earlier] == rows).all():
            self._search = self._search.keep(torch.from_numpy(earlier).to(self._device))
        else:
            self._search = BestFirstSearch(self._tree, self.features_of(rows))
        self._rows = rows
        return self._search
