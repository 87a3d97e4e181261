"""The label tree level by level from the root: all nodes of a level are split at once.

At each node, the best split of its labels for given w, b (Bamler & Mandt 2020, Eq. 9) and the best
w, b for that split (Eq. 8) are found in turn, until the split changes no more (or after 100 turns).
`tree_fit.c` does it, on the CPU. A level is fitted in blocks of nodes, which bounds the memory: an
iteration takes that of one block beside that of the pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import coo_array, csr_array
from torch import Tensor

from longtail.models.errors import ignore
from longtail.models.label_tree.tree import depth_of, one_sided_biases
from longtail.models.native.library import BOOL, F32, F64, FLOAT, I64, INT, RecordOf, function
from longtail.models.ranking.top_k import NO_LABEL


class NodeArrays(NamedTuple):
    """Some nodes of a level with their data, as `training.label_tree.splits.NodeBlock`.

    Attributes:
        features: x of every document, with a 1 behind it.
        row_starts: The first row of each node, and the number of rows.
        row_documents: The document of each row.
        pair_starts: The first pair of each row, and the number of pairs.
        pair_labels: The label of each pair, as an index into `label_sums`.
        pair_weights: Its weight.
        label_starts: The first label of each node, and the number of labels.
        label_sums: The weighted sum, over each label's documents, of x with a 1 behind it.
    """

    features: Float32[np.ndarray, "document feature"]
    row_starts: Int64[np.ndarray, nodes_plus_1]
    row_documents: Int64[np.ndarray, row]
    pair_starts: Int64[np.ndarray, rows_plus_1]
    pair_labels: Int64[np.ndarray, pair]
    pair_weights: Float32[np.ndarray, pair]
    label_starts: Int64[np.ndarray, nodes_plus_1]
    label_sums: Float64[np.ndarray, "label feature"]


_NODES = RecordOf(
    "node_arrays", features=F32["document feature"], row_starts=I64["node+1"],
    row_documents=I64["row"], pair_starts=I64["row+1"], pair_labels=I64["pair"],
    pair_weights=F32["pair"], label_starts=I64["node+1"], label_sums=F64["label feature"],
)  # fmt: skip
_fit_nodes = function(
    "tree_fit_nodes", nodes=_NODES, num_nodes=INT, num_features=INT, capacity=INT, strength=FLOAT,
    most_rounds=INT, weights=F64.out["num_nodes num_features"], goes_right=BOOL.out["label"],
    log_likelihoods=F64.out["num_nodes"],
)  # fmt: skip


def fit_nodes(
    nodes: NodeArrays,
    capacity: int,
    strength: float,
    most_rounds: int,
    weights: Float64[np.ndarray, "node feature"],
    goes_right: Bool[np.ndarray, label],
    log_likelihoods: Float64[np.ndarray, node],
) -> None:
    """Split the labels of each node and fit its decision.

    Args:
        nodes: Each with two labels at least.
        capacity: Leaves below each node, a power of two.
        strength: lambda_n, above zero.
        most_rounds: Splits of a node at most.
        weights: w of each node, and b in the last column; zeros, written to.
        goes_right: For each label, whether it is on the right of its node; written to.
        log_likelihoods: Eq. 8 at each node, in nats; 0 where all labels are on one side; written
            to.
    """
    num_nodes, num_features = weights.shape
    _fit_nodes(
        nodes, num_nodes, num_features, capacity, strength, most_rounds, weights, goes_right,
        log_likelihoods,
    )  # fmt: skip


_MAX_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class NodeBlock:
    """Some nodes of a level with their labels, rows (a document each) and pairs.

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
    Unlike in the paper, w, b need only be near their best before the labels are split again; they
    are at their best in the end.

    Compiled code fits one node after another, the large ones to some of their rows first.
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


_BLOCK_COST = 2**17  # rows of a block, each node counting as some too
_ROWS_OF_A_NODE = 16  # that cost about what a node's Hessian costs


@dataclass(frozen=True, slots=True)
class GrownTree:
    """The nodes of a fitted tree, as in `longtail.models.label_tree.tree.LabelTree`.

    Attributes:
        weights: w of each inner node.
        biases: b of each inner node.
        label_of_leaf: The label of each leaf.
        log_likelihood: Eq. 7 of the training pairs, in nats.
    """

    weights: Float32[np.ndarray, "node k"]
    biases: Float32[np.ndarray, node]
    label_of_leaf: Int64[np.ndarray, leaf]
    log_likelihood: float


@dataclass(frozen=True, slots=True)
class _Pairs:
    documents: Int64[Tensor, pair]
    labels: Int64[Tensor, pair]
    weights: Float32[Tensor, pair]

    def take(self, pairs: Tensor) -> _Pairs:
        return _Pairs(self.documents[pairs], self.labels[pairs], self.weights[pairs])


def grow_tree(
    features: Float32[Tensor, "document k"],
    truth: Float32[csr_array, "document label"],
    regulariser: float,
    progress: Callable[[int], object] = ignore,
) -> GrownTree:
    """Fit all nodes, from the root down.

    Args:
        features: x of the documents.
        truth: The labels of each document; the values are the weights of the pairs.
        regulariser: lambda_n, above zero.
        progress: Called with 1 after every level.
    """
    augmented = torch.cat([features, torch.ones_like(features[:, :1])], dim=1)
    pairs = _pairs_of(truth)
    sums = csr_array(truth.T) @ augmented.numpy().astype(np.float64)
    label_sums = torch.from_numpy(sums)
    num_labels = truth.shape[1]
    label_nodes = torch.zeros(num_labels, dtype=torch.int64)  # within the level
    levels, log_likelihood = [augmented.new_zeros((0, augmented.shape[1]))], 0.0
    for height in range(depth_of(num_labels), 0, -1):
        level = _Level(augmented, pairs, label_sums, label_nodes, 2**height)
        weights = augmented.new_zeros((level.num_nodes, augmented.shape[1]))
        goes_right = torch.zeros_like(label_nodes, dtype=torch.bool)  # a single label goes left
        for nodes, labels, block in level.blocks():
            splits = split_nodes(block, regulariser)
            weights[nodes] = splits.weights.float()
            goes_right[labels] = splits.goes_right
            log_likelihood += float(splits.log_likelihoods.sum())
        levels.append(weights)
        label_nodes = 2 * label_nodes + goes_right
        progress(1)
    return _grown(torch.cat(levels), label_nodes, log_likelihood)


def _pairs_of(truth: Float32[csr_array, "document label"]) -> _Pairs:
    pairs = coo_array(truth)
    return _Pairs(
        documents=torch.from_numpy(pairs.row.astype(np.int64)),
        labels=torch.from_numpy(pairs.col.astype(np.int64)),
        weights=torch.from_numpy(pairs.data),
    )


def _grown(
    weights: Float32[Tensor, "node f"], leaves: Int64[Tensor, label], log_likelihood: float
) -> GrownTree:
    """Return the tree in which labels have these leaves; padding has probability zero."""
    label_of_leaf = np.full(len(weights) + 1, NO_LABEL, dtype=np.int64)
    label_of_leaf[leaves.numpy()] = np.arange(len(leaves))
    fitted = weights.numpy()
    forced = one_sided_biases((label_of_leaf != NO_LABEL).astype(np.int64))
    return GrownTree(
        weights=np.where(np.isinf(forced)[:, None], np.float32(0), fitted[:, :-1]),
        biases=np.where(np.isinf(forced), forced, fitted[:, -1]),
        label_of_leaf=label_of_leaf,
        log_likelihood=log_likelihood,
    )


class _Level:
    """The nodes of one level that have two labels or more, with their data."""

    def __init__(
        self,
        features: Float32[Tensor, "document f"],
        pairs: _Pairs,
        label_sums: Float64[Tensor, "label f"],
        label_nodes: Int64[Tensor, label],
        capacity: int,
    ) -> None:
        self.num_nodes = 2 ** depth_of(len(label_nodes)) // capacity
        self._features, self._label_sums, self._capacity = features, label_sums, capacity
        sizes = torch.bincount(label_nodes, minlength=self.num_nodes)
        self._nodes = (sizes >= 2).nonzero().squeeze(1)
        self._sizes = sizes[self._nodes]
        # From here on a node's number is its place in `_nodes`; other labels have none.
        number = torch.full_like(sizes, -1).index_copy_(
            0, self._nodes, torch.arange(len(self._nodes))
        )
        label_numbers = number[label_nodes]
        order = _stable_order(label_numbers, len(self._nodes))
        self._labels = order[len(order) - int(self._sizes.sum()) :]
        self._label_nodes = label_numbers[self._labels]
        self._place_of_label = torch.empty_like(label_nodes).index_copy_(
            0, self._labels, torch.arange(len(self._labels))
        )
        self._sort_pairs(pairs, label_numbers)

    def _sort_pairs(self, pairs: _Pairs, label_numbers: Int64[Tensor, label]) -> None:
        """Order pairs by node, then document; those of one node and document are a row."""
        numbers = label_numbers[pairs.labels]
        # Pairs are in the order of the documents; those without a node come first.
        order = _stable_order(numbers, len(self._nodes))[int((numbers < 0).sum()) :]
        self._pairs = pairs.take(order)
        nodes, documents = numbers[order], self._pairs.documents
        is_first = torch.ones_like(nodes, dtype=torch.bool)
        is_first[1:] = (nodes.diff() != 0) | (documents.diff() != 0)
        first = is_first.nonzero().squeeze(1)
        self._row_pairs = first.diff(append=first.new_tensor([len(nodes)]))
        self._row_nodes, self._row_documents = nodes[first], documents[first]

    def blocks(self) -> Iterator[tuple[Int64[Tensor, node], Int64[Tensor, label], NodeBlock]]:
        """Yield blocks of nodes, with the nodes' numbers in the level and the labels' indices."""
        rows = torch.bincount(self._row_nodes, minlength=len(self._nodes))
        costs = (rows + _ROWS_OF_A_NODE).cumsum(0)
        blocks = (costs - rows) // _BLOCK_COST
        ends = torch.bincount(blocks).cumsum(0)
        node_ends = [0, *ends[ends.diff(prepend=ends.new_zeros(1)) > 0].tolist()]
        row_ends = _ends(rows, node_ends)
        label_ends = _ends(self._sizes, node_ends)
        pair_ends = _ends(self._row_pairs, row_ends)
        for i in range(len(node_ends) - 1):
            labels = slice(label_ends[i], label_ends[i + 1])
            yield (
                self._nodes[node_ends[i] : node_ends[i + 1]],
                self._labels[labels],
                self._block(
                    node_ends[i],
                    labels,
                    slice(row_ends[i], row_ends[i + 1]),
                    slice(pair_ends[i], pair_ends[i + 1]),
                ),
            )

    def _block(self, first_node: int, labels: slice, rows: slice, pairs: slice) -> NodeBlock:
        return NodeBlock(
            features=self._features,
            capacity=self._capacity,
            label_nodes=self._label_nodes[labels] - first_node,
            label_sums=self._label_sums[self._labels[labels]],
            row_nodes=self._row_nodes[rows] - first_node,
            row_documents=self._row_documents[rows],
            row_pairs=self._row_pairs[rows],
            pair_labels=self._place_of_label[self._pairs.labels[pairs]] - labels.start,
            pair_weights=self._pairs.weights[pairs],
        )


def _stable_order(numbers: Int64[Tensor, item], num_nodes: int) -> Int64[Tensor, item]:
    """Return the order of items by node, -1 first; those of a node stay as they are."""
    if num_nodes < 2**16:
        shifted = (numbers + 1).numpy().astype(np.uint16)  # which numpy sorts digit by digit
        return torch.from_numpy(shifted.argsort(kind="stable"))
    return numbers.argsort(stable=True)


def _ends(counts: Int64[Tensor, item], items: list[int]) -> list[int]:
    """Return how many parts come before each item, given the number of parts of each."""
    before = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return before[torch.tensor(items)].tolist()
