"""Draws from a label tree on a CPU, with their log p_n: calls of `fast_tree_sampling.c`."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Float64, Int64

from longtail.models.label_tree.kernels import NODES, Nodes
from longtail.models.native.library import F32, F64, I64, INT, function

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
        nodes: Of the tree.
        features: Of documents.
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
