"""Fit of the label tree's nodes on a CPU: the call of `tree_fit.c`.

The alternation that `longtail.training.label_tree.splits.split_nodes` describes, and the ascent
within it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from longtail.models.native.library import (
    BOOL,
    F32,
    F64,
    FLOAT,
    I64,
    INT,
    RecordOf,
    function,
)


class NodeArrays(NamedTuple):
    """Some nodes of a level and what comes to them, as `training.label_tree.splits.NodeBlock`.

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
