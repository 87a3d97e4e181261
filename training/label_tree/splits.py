"""The nodes of one level of the label tree, split at once (Bamler & Mandt 2020, section 3).

At each node, the best split of its labels for given w, b (Eq. 9) and the best w, b for that split
(Eq. 8) are found in turn, until the split changes no more (or after 100 turns).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int64
from torch import Tensor

from training.label_tree.batched_newton import NodeAscent, segments_of, sums_of_runs
from training.label_tree.cpu_kernel import LOOSE, TIGHT, NodeArrays, fit_nodes

_MOST_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class NodeBlock:
    """Some nodes of a level and what comes to them: labels, rows (a document each), pairs.

    Attributes:
        features: x of every document, with a 1 behind it.
        capacity: Leaves below each node, a power of two.
        label_nodes: The node of each label, never falling; each node has two labels at least.
        label_sums: The weighted sum, over each label's documents, of x with a 1 behind it.
        row_nodes: The node of each row, never falling.
        row_documents: Its document.
        row_pairs: How many pairs a row has; they follow each other below.
        pair_labels: The label of each pair, as an index into `label_nodes`.
        pair_weights: Its weight.
    """

    features: Float32[Tensor, "document feature"]
    capacity: int
    label_nodes: Int64[Tensor, label]
    label_sums: Float64[Tensor, "label feature"]
    row_nodes: Int64[Tensor, row]
    row_documents: Int64[Tensor, row]
    row_pairs: Int64[Tensor, row]
    pair_labels: Int64[Tensor, pair]
    pair_weights: Float32[Tensor, pair]


@dataclass(frozen=True, slots=True)
class NodeSplits:
    """Fitted nodes.

    Attributes:
        weights: w of each node, and b in the last column.
        goes_right: For each label, whether it is on the right of its node.
        log_likelihoods: Eq. 8 at each node, in nats; 0 where all labels are on one side.
    """

    weights: Float64[Tensor, "node feature"]
    goes_right: Bool[Tensor, label]
    log_likelihoods: Float64[Tensor, node]


def split_nodes(block: NodeBlock, regulariser: float) -> NodeSplits:
    """Split the labels of each node and fit its decision.

    Greedy alternating ascent on Eq. 8 minus regulariser (|w|^2 + b^2); the first split is at the
    middle of the labels' feature sums along their dominant direction. Where padding leaves a choice
    of how many labels go to a side, each goes where its Delta_y says, as padding has Delta_y = 0.
    Unlike in the paper, w, b need only be near their best before the labels are split anew; they
    are at their best in the end.

    On a CPU compiled code fits one node after another, the large ones to some of their rows first.

    Args:
        block: The nodes.
        regulariser: lambda_n of the paper, above zero.
    """
    if block.features.device.type == "cpu":
        return split_one_by_one(block, regulariser)
    return split_in_batches(block, regulariser)


def split_one_by_one(block: NodeBlock, regulariser: float) -> NodeSplits:
    """Split the labels of each node by compiled code (see `split_nodes`)."""
    num_nodes = int(block.label_nodes[-1]) + 1
    weights = block.label_sums.new_zeros((num_nodes, block.features.shape[1]))
    goes_right = torch.zeros_like(block.label_nodes, dtype=torch.bool)
    log_likelihoods = block.label_sums.new_zeros(num_nodes)
    fit_nodes(
        NodeArrays(
            features=block.features.numpy(),
            row_starts=_starts(torch.bincount(block.row_nodes, minlength=num_nodes)),
            row_documents=block.row_documents.numpy(),
            pair_starts=_starts(block.row_pairs),
            pair_labels=block.pair_labels.numpy(),
            pair_weights=block.pair_weights.numpy(),
            label_starts=_starts(torch.bincount(block.label_nodes)),
            label_sums=block.label_sums.numpy(),
        ),
        block.capacity,
        float(regulariser),
        _MOST_ROUNDS,
        weights.numpy(),
        goes_right.numpy(),
        log_likelihoods.numpy(),
    )
    return NodeSplits(weights, goes_right, log_likelihoods)


def _starts(counts: Int64[Tensor, item]) -> Int64[np.ndarray, items_plus_1]:
    """Return how many come before each item, and how many there are."""
    return np.concatenate([[0], counts.cumsum(0).numpy()])


def split_in_batches(block: NodeBlock, regulariser: float) -> NodeSplits:
    """Split the labels of all nodes at once, on any device (see `split_nodes`)."""
    return _Alternation(block, regulariser).run()


class _Alternation:
    def __init__(self, block: NodeBlock, regulariser: float) -> None:
        self._block = block
        self._sizes = torch.bincount(block.label_nodes)
        num_nodes = len(self._sizes)
        row_totals = sums_of_runs(block.pair_weights, block.row_pairs)
        self._segments, self._slots = segments_of(
            block.features[block.row_documents], row_totals, block.row_nodes, num_nodes
        )
        self._ascent = NodeAscent(self._segments, regulariser)
        node_totals = self._segments.sums(self._segments.totals.sum(1).double())
        self._tolerance_unit = node_totals.clamp(min=1e-30)

    def run(self) -> NodeSplits:
        block = self._block
        goes_right = self._first_split()
        # Two labels that fill a node have but one split.
        is_forced = (self._sizes == 2) & (block.capacity == 2)
        is_tight = is_forced.clone()
        is_open = self._has_two_sides(goes_right)
        for _ in range(_MOST_ROUNDS):
            tolerances = torch.where(is_tight, TIGHT, LOOSE) * self._tolerance_unit
            self._ascent.ascend(self._right_of_rows(goes_right), is_open, tolerances)
            better = self._best_split(is_open & ~is_forced, goes_right)
            is_changed = self._any_label(better != goes_right)
            goes_right = better
            is_open &= (is_changed | ~is_tight) & self._has_two_sides(goes_right)
            is_tight = ~is_changed
            if not bool(is_open.any()):
                break
        right_of_rows = self._right_of_rows(goes_right)
        self._ascent.ascend(right_of_rows, is_open, TIGHT * self._tolerance_unit)
        has_two_sides = self._has_two_sides(goes_right)
        log_likelihoods = self._ascent.log_likelihoods(right_of_rows)
        return NodeSplits(
            weights=self._ascent.weights,
            goes_right=goes_right,
            log_likelihoods=torch.where(has_two_sides, log_likelihoods, 0.0),
        )

    def _first_split(self) -> Bool[Tensor, label]:
        """Split in the middle along the dominant eigenvector of the centred feature sums."""
        nodes = self._block.label_nodes
        sums = self._block.label_sums[:, :-1]
        means = torch.segment_reduce(sums, "mean", lengths=self._sizes, axis=0)
        centred = (sums - means[nodes]).float()
        segments, _ = segments_of(centred, torch.ones_like(centred[:, 0]), nodes, len(means))
        directions = torch.linalg.eigh(segments.gram(segments.totals)).eigenvectors[:, :, -1]
        # An eigenvector's sign is arbitrary: its largest entry decides.
        largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
        scores = (centred * (directions * largest.sign())[nodes]).sum(1)
        return self._right_of(scores, nodes, self._sizes // 2)

    def _best_split(
        self, is_open: Bool[Tensor, node], before: Bool[Tensor, label]
    ) -> Bool[Tensor, label]:
        """Return the split that is best for the weights (Eq. 9); as before at the other nodes."""
        labels = is_open[self._block.label_nodes].nonzero().squeeze(1)
        nodes = self._block.label_nodes[labels]
        gains = (self._block.label_sums[labels] * self._ascent.weights[nodes]).sum(1)  # Delta_y
        negative = torch.bincount(nodes[gains < 0], minlength=len(self._sizes))
        not_positive = torch.bincount(nodes[gains <= 0], minlength=len(self._sizes))
        # Labels with Delta_y = 0 may go either way: nearest to the middle.
        num_left = torch.minimum(torch.maximum(self._sizes // 2, negative), not_positive)
        return before.index_copy(0, labels, self._right_of(gains, nodes, num_left))

    def _right_of(
        self,
        scores: Float[Tensor, some],
        nodes: Int64[Tensor, some],
        num_left: Int64[Tensor, node],
    ) -> Bool[Tensor, some]:
        """Return whether labels are beyond the lowest `num_left` of their node, as far as fits.

        Equal scores go by the order of the labels.

        Args:
            scores: Of all labels of some nodes.
            nodes: The node of each, never falling.
            num_left: Labels wanted on the left of each node.
        """
        half = self._block.capacity // 2
        num_left = torch.minimum(num_left.clamp(max=half), self._sizes)
        num_left = torch.maximum(num_left, self._sizes - half)
        order = scores.argsort(stable=True)
        order = order[nodes[order].argsort(stable=True)]
        counts = torch.bincount(nodes, minlength=len(self._sizes))
        first = counts.cumsum(0) - counts
        places = torch.arange(len(nodes), device=nodes.device) - first[nodes]
        is_right = places >= num_left[nodes]
        return torch.empty_like(is_right).index_copy_(0, order, is_right)

    def _right_of_rows(self, goes_right: Bool[Tensor, label]) -> Float32[Tensor, "chunk row"]:
        """Return the part of each row's weight whose labels are on the right."""
        weights = self._block.pair_weights * goes_right[self._block.pair_labels]
        sums = sums_of_runs(weights, self._block.row_pairs)
        totals = self._segments.totals
        return torch.zeros_like(totals).flatten().index_copy_(0, self._slots, sums).view_as(totals)

    def _has_two_sides(self, goes_right: Bool[Tensor, label]) -> Bool[Tensor, node]:
        return self._any_label(goes_right) & self._any_label(~goes_right)

    def _any_label(self, is_so: Bool[Tensor, label]) -> Bool[Tensor, node]:
        """Return the nodes with a label of which something is so."""
        return torch.bincount(self._block.label_nodes[is_so], minlength=len(self._sizes)) > 0
