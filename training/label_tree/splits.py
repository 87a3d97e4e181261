"""The nodes of one level of the label tree, split at once (Bamler & Mandt 2020, section 3).

At each node, the best split of its labels for given w, b (Eq. 9) and the best w, b for that split
(Eq. 8) are found in turn, until the split changes no more (or after 100 turns).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from longtail.training.label_tree.cpu_kernel import NodeArrays, fit_nodes

_MAX_ROUNDS = 100


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

    Compiled code fits one node after another, the large ones to some of their rows first.

    Args:
        block: The nodes.
        regulariser: lambda_n of the paper, above zero.
    """
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
        _MAX_ROUNDS,
        weights.numpy(),
        goes_right.numpy(),
        log_likelihoods.numpy(),
    )
    return NodeSplits(weights, goes_right, log_likelihoods)


def _starts(counts: Int64[Tensor, item]) -> Int64[np.ndarray, items_plus_1]:
    """Return how many come before each item, and how many there are."""
    return np.concatenate([[0], counts.cumsum(0).numpy()])
