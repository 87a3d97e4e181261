"""The walks through a label tree on a CPU: calls of `label_tree.c`.

A node's two log-probabilities are computed in one place, in float64 from float32 numbers, with
additions in one order: so log p_n of a label is the same to the bit on every path.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Float64, Int64

from longtail.models.native.library import F32, F64, I64, INT, Converter, function
from longtail.models.ranking.top_k import NO_LABEL

Nodes = tuple[Float32[np.ndarray, "node k"], Float32[np.ndarray, "node"]]
"""Weights and biases of the inner nodes, numbered as in `LabelTree`."""

NODES: dict[str, Converter] = {
    "weights": F32["num_nodes num_features"],
    "biases": F32["num_nodes"],
    "num_nodes": INT,
}
_log_prob_of_leaves = function(
    "label_tree_log_prob_of_leaves", **NODES, features=F32["document num_features"],
    num_features=INT, documents=I64["num_pairs"], leaves=I64["num_pairs"], num_pairs=INT,
    found=F64.out["num_pairs"],
)  # fmt: skip
_log_reach = function(
    "label_tree_log_reach", **NODES, features=F32["num_documents num_features"], num_features=INT,
    num_documents=INT, reach=F64.out["num_documents 2*num_nodes+1"],
)  # fmt: skip
_best_leaves = function(
    "label_tree_best_leaves", **NODES, label_of_leaf=I64["num_nodes+1"],
    features=F32["num_documents num_features"], num_features=INT, num_documents=INT, m=INT,
    labels=I64.out["num_documents m"], scores=F32.out["num_documents m"],
)  # fmt: skip


def log_prob_of_leaves(
    nodes: Nodes,
    features: Float32[np.ndarray, "document k"],
    documents: Int64[np.ndarray, pair],
    leaves: Int64[np.ndarray, pair],
) -> Float64[np.ndarray, pair]:
    """Return the log-probability, in nats, of coming to a leaf, for pairs of document and leaf.

    What two pairs in a row have in common of document and path is computed once: rising leaves of
    one document are cheapest.
    """
    found = np.empty(len(leaves), dtype=np.float64)
    num_features = features.shape[1]
    _log_prob_of_leaves(
        *nodes, len(nodes[1]), features, num_features, documents, leaves, len(leaves), found
    )
    return found


def log_prob_of_all_leaves(
    nodes: Nodes, features: Float32[np.ndarray, "document k"]
) -> Float64[np.ndarray, "document leaf"]:
    """Return the log-probability, in nats, of coming to each leaf, from left to right."""
    num_nodes = len(nodes[1])
    reach = np.zeros((len(features), 2 * num_nodes + 1), dtype=np.float64)
    _log_reach(*nodes, num_nodes, features, features.shape[1], len(features), reach)
    return reach[:, num_nodes:]


def best_leaves(
    nodes: Nodes,
    label_of_leaf: Int64[np.ndarray, leaf],
    features: Float32[np.ndarray, "document k"],
    m: int,
) -> tuple[Int64[np.ndarray, "document m"], Float32[np.ndarray, "document m"]]:
    """Return the labels of the m most probable leaves and log p_n of each, by best-first search.

    The log-probability of coming to a node bounds that of every leaf below it; so the most probable
    node that is known is opened until m leaves have come, and all others that round to the same
    float32 as the last of them. Equal float32 values: the smaller label index first. Fewer than m
    labels: `NO_LABEL` and -inf.

    Args:
        nodes: Nodes of the tree.
        label_of_leaf: Below 0 for leaves that are not to be found.
        features: Features of each document.
        m: At least 1.
    """
    labels = np.full((len(features), m), NO_LABEL, dtype=np.int64)
    scores = np.full((len(features), m), -np.inf, dtype=np.float32)
    num_documents, num_features = features.shape
    _best_leaves(
        *nodes, len(nodes[1]), label_of_leaf, features, num_features, num_documents, m, labels,
        scores,
    )  # fmt: skip
    return labels, scores


_draw = function(
    "tree_draw_leaves", **NODES, features=F32["document num_features"], num_features=INT,
    rows=I64["num_draws"], num_draws=INT, uniform=F64.out["num_draws"],
    leaves=I64.out["num_draws"], log_probs=F32.out["num_draws"],
)  # fmt: skip
_quick_log_prob = function(
    "tree_quick_log_prob", **NODES, features=F32["num_leaves num_features"], num_features=INT,
    leaves=I64["num_leaves"], num_leaves=INT, log_probs=F32.out["num_leaves"],
)  # fmt: skip


def draw_leaves(
    nodes: Nodes,
    features: Float32[np.ndarray, "document k"],
    rows: Int64[np.ndarray, draw],
    uniform: Float64[np.ndarray, draw],
) -> tuple[Int64[np.ndarray, draw], Float32[np.ndarray, draw]]:
    """Draw leaves by inversion, and return log p_n of each, in nats.

    Args:
        nodes: Nodes of the tree.
        features: The documents' features.
        rows: The document of each draw.
        uniform: One number in [0, 1) a draw; changed.

    Returns:
        Leaves, the leftmost being 0, and log p_n.
    """
    leaves, log_probs = np.empty_like(rows), np.empty(len(rows), dtype=np.float32)
    num_features = features.shape[1]
    _draw(
        *nodes, len(nodes[1]), features, num_features, rows, len(rows), uniform, leaves, log_probs
    )
    return leaves, log_probs


def quick_log_prob_of_leaves(
    nodes: Nodes,
    features: Float32[np.ndarray, "document k"],
    leaves: Int64[np.ndarray, document],
) -> Float32[np.ndarray, document]:
    """Return log p_n, in nats, of one leaf of each document."""
    log_probs = np.empty(len(leaves), dtype=np.float32)
    num_features = features.shape[1]
    _quick_log_prob(*nodes, len(nodes[1]), features, num_features, leaves, len(leaves), log_probs)
    return log_probs
