"""Draws from a label tree on a CPU, with log p_n of what was drawn; the compiled loops of training.

Many walks go down together, level by level, so that a level's logistic functions are vector
instructions and its look-ups don't wait for each other. With s the score of the decision at a node,
a step has the probability 1 / (1 + e^-|s|) on the likely side, and e^-|s| times that on the other.
So log p_n is minus the sum of |s| over the unlikely steps, less the logarithm of the product of all
1 + e^-|s|: one logarithm a walk.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float32, Float64, Int64

from longtail.models.jit import vectorised
from longtail.models.label_tree.exponential import exp_of_minus
from longtail.models.label_tree.kernels import Nodes

_TOGETHER = 256  # walks


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
    _draw_leaves(*nodes, features, rows, uniform, leaves, log_probs)
    return leaves, log_probs


def quick_log_prob_of_leaves(
    nodes: Nodes,
    features: Float32[np.ndarray, "document k"],
    leaves: Int64[np.ndarray, document],
) -> Float32[np.ndarray, document]:
    """Return log p_n, in nats, of one leaf of each document."""
    log_probs = np.empty(len(leaves), dtype=np.float32)
    _log_prob_of_leaves(*nodes, features, leaves, log_probs)
    return log_probs


@vectorised
def _draw_leaves(weights, biases, features, rows, uniform, leaves, log_probs):
    num_nodes = len(biases)
    scores = np.empty(_TOGETHER)
    widths, products, unlikely = np.empty(_TOGETHER), np.empty(_TOGETHER), np.empty(_TOGETHER)
    for first in range(0, len(uniform), _TOGETHER):
        nodes, rests = leaves[first : first + _TOGETHER], uniform[first : first + _TOGETHER]
        nodes[:] = 0
        widths[:], products[:], unlikely[:] = 1.0, 1.0, 0.0
        while nodes[0] < num_nodes:
            for i in range(len(nodes)):
                scores[i] = _score(features, rows[first + i], weights, biases, nodes[i])
            for i in range(len(nodes)):
                score, size = scores[i], abs(scores[i])
                power = exp_of_minus(size)
                likely = widths[i] / (1.0 + power)
                right = likely if score >= 0 else power * likely
                # At an infinite score, whatever rounding left of `rests`.
                goes_right = (rests[i] < right) | (score == math.inf)
                is_likely = goes_right == (score >= 0)
                rests[i] -= 0.0 if goes_right else right
                widths[i] = likely if is_likely else power * likely
                unlikely[i] += 0.0 if is_likely else size
                products[i] *= 1.0 + power
                nodes[i] = 2 * nodes[i] + (2 if goes_right else 1)
        for i in range(len(nodes)):
            nodes[i] -= num_nodes
            log_probs[first + i] = -unlikely[i] - math.log(products[i])


@vectorised
def _log_prob_of_leaves(weights, biases, features, leaves, log_probs):
    num_nodes = len(biases)
    scores, signs = np.empty(_TOGETHER), np.empty(_TOGETHER)
    products, unlikely = np.empty(_TOGETHER), np.empty(_TOGETHER)
    nodes = np.empty(_TOGETHER, dtype=np.int64)
    for first in range(0, len(leaves), _TOGETHER):
        num = min(_TOGETHER, len(leaves) - first)
        nodes[:num] = leaves[first : first + num] + num_nodes
        products[:], unlikely[:] = 1.0, 0.0
        while nodes[0] > 0:
            for i in range(num):
                signs[i] = 1.0 - 2.0 * (nodes[i] % 2)
                nodes[i] = (nodes[i] - 1) // 2
                scores[i] = _score(features, first + i, weights, biases, nodes[i])
            for i in range(num):
                size = abs(scores[i])
                products[i] *= 1.0 + exp_of_minus(size)
                unlikely[i] += size if scores[i] * signs[i] < 0 else 0.0
        for i in range(num):
            log_probs[first + i] = -unlikely[i] - math.log(products[i])


@vectorised
def _score(features, row, weights, biases, node):
    """Return w·x + b of a row at a node; four sums, so that they can be one vector."""
    num_features = features.shape[1]
    a = b = c = d = 0.0
    whole = num_features // 4 * 4
    for i in range(0, whole, 4):
        a += np.float64(features[row, i]) * weights[node, i]
        b += np.float64(features[row, i + 1]) * weights[node, i + 1]
        c += np.float64(features[row, i + 2]) * weights[node, i + 2]
        d += np.float64(features[row, i + 3]) * weights[node, i + 3]
    for i in range(whole, num_features):
        a += np.float64(features[row, i]) * weights[node, i]
    return (a + b) + (c + d) + biases[node]
