"""The walks through a label tree on a CPU: the compiled loops of `LabelTree` and `TreeSource`.

A node's two log-probabilities are computed in one place, in float64 from float32 numbers, with
additions in one order: so log p_n of a label is the same number, to the bit, whoever asks.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float32, Float64, Int64

from longtail.models.jit import compiled
from longtail.models.ranking.top_k import NO_LABEL

Nodes = tuple[Float32[np.ndarray, "node k"], Float32[np.ndarray, "node"]]
"""Weights and biases of the inner nodes, numbered as in `LabelTree`."""


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
    _log_prob_of_leaves(*nodes, features, documents, leaves, found)
    return found


def log_prob_of_all_leaves(
    nodes: Nodes, features: Float32[np.ndarray, "document k"]
) -> Float64[np.ndarray, "document leaf"]:
    """Return the log-probability, in nats, of coming to each leaf, from left to right."""
    num_nodes = len(nodes[1])
    reach = np.zeros((len(features), 2 * num_nodes + 1), dtype=np.float64)
    _log_reach(*nodes, features, reach)
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
        nodes: Of the tree.
        label_of_leaf: Below 0 for leaves that are not to be found.
        features: Of each document.
        m: At least 1.
    """
    labels = np.full((len(features), m), NO_LABEL, dtype=np.int64)
    scores = np.full((len(features), m), -np.inf, dtype=np.float32)
    _best_leaves(*nodes, label_of_leaf, features, labels, scores)
    return labels, scores


@compiled
def _log_decisions(weights, biases, node, features, document):
    """Return log sigma(-w·x - b) and log sigma(w·x + b), of going left and right.

    Rows are named by their place: making views of them would take longer than the sum.
    """
    score = np.float64(biases[node])  # s = w·x + b, Eq. 7; a product of float32 is exact in float64
    for i in range(features.shape[1]):
        score += np.float64(weights[node, i]) * np.float64(features[document, i])
    # log sigma(s) = min(s, 0) - log(1 + e^-|s|), and log sigma(-s) = -max(s, 0) less the same:
    # neither overflows, and infinite biases, which padding forces, give 0 and -inf.
    rest = math.log1p(math.exp(-abs(score)))
    return -max(score, 0.0) - rest, min(score, 0.0) - rest


@compiled
def _log_prob_of_leaves(weights, biases, features, documents, leaves, found):
    depth = 0
    while (1 << depth) - 1 < len(biases):
        depth += 1
    # Invariant: path[0 .. level] are the log-probabilities, for `document`, of coming to the nodes
    # above `leaf_before` on these levels.
    path = np.zeros(depth + 1, dtype=np.float64)
    document, leaf_before = -1, 0
    for i in range(len(leaves)):
        leaf = leaves[i]
        level = 0
        if documents[i] == document:
            # Bit depth - 1 of a leaf is the first decision: paths part at the highest bit in which
            # two leaves differ, and are one above it.
            differing = leaf ^ leaf_before
            level = depth
            while differing:
                differing >>= 1
                level -= 1
        document, leaf_before = documents[i], leaf
        while level < depth:
            node = (
                (1 << level) - 1 + (leaf >> (depth - level))
            )  # as in a heap: 2^level - 1 above it
            left, right = _log_decisions(weights, biases, node, features, document)
            goes_right = (leaf >> (depth - level - 1)) & 1
            path[level + 1] = path[level] + (right if goes_right else left)
            level += 1
        found[i] = path[depth]  # log p_n, the sum over the path (Eq. 7)


@compiled
def _log_reach(weights, biases, features, reach):
    # reach: (document, node, then leaf), the root's column 0; a node comes before its children.
    for document in range(len(features)):
        for node in range(len(biases)):
            left, right = _log_decisions(weights, biases, node, features, document)
            reach[document, 2 * node + 1] = reach[document, node] + left
            reach[document, 2 * node + 2] = reach[document, node] + right


@compiled
def _best_leaves(weights, biases, label_of_leaf, features, labels, scores):
    m = labels.shape[1]
    for document in range(len(features)):
        leaves, found = _most_probable_leaves(weights, biases, label_of_leaf, features, document, m)
        found_labels = label_of_leaf[leaves]
        start = 0
        while start < min(len(found), m):  # equal float32 scores are in the order of float64 bounds
            stop = start + 1
            while stop < len(found) and found[stop] == found[start]:
                stop += 1
            found_labels[start:stop] = np.sort(found_labels[start:stop])
            start = stop
        kept = min(len(found), m)
        labels[document, :kept] = found_labels[:kept]
        scores[document, :kept] = found[:kept]


@compiled
def _most_probable_leaves(weights, biases, label_of_leaf, features, document, m):
    """Return the m most probable leaves to be found, and all that equal the last one in float32."""
    # A binary heap of nodes, the largest bound first, and the bound of each: log-probability of
    # coming to it, so none below it can have more. It begins with the root, of bound 0.
    heap, bounds, size = np.zeros(256, dtype=np.int64), np.zeros(256, dtype=np.float64), 1
    leaves, scores = np.empty(m + 16, dtype=np.int64), np.empty(m + 16, dtype=np.float32)
    num_found = 0
    # Leaves come out in falling order of their scores; float32 rounding keeps that order.
    while size and (num_found < m or np.float32(bounds[0]) >= scores[m - 1]):
        node, bound = heap[0], bounds[0]
        size -= 1
        heap[0], bounds[0] = heap[size], bounds[size]
        _sink(heap, bounds, size)
        if node >= len(biases):  # a leaf: all that is left in the heap has a bound at most this one
            if num_found == len(leaves):
                leaves = np.concatenate((leaves, np.empty_like(leaves)))
                scores = np.concatenate((scores, np.empty_like(scores)))
            leaves[num_found], scores[num_found] = node - len(biases), np.float32(bound)
            num_found += 1
            continue
        if size + 2 > len(heap):
            heap = np.concatenate((heap, np.empty_like(heap)))
            bounds = np.concatenate((bounds, np.empty_like(bounds)))
        decisions = _log_decisions(weights, biases, node, features, document)
        for side in range(2):
            below = bound + decisions[side]
            child = 2 * node + 1 + side
            has_labels = child < len(biases) or label_of_leaf[child - len(biases)] >= 0
            if has_labels and np.float32(below) > -np.inf:
                _rise(heap, bounds, size, child, below)
                size += 1
    return leaves[:num_found], scores[:num_found]


@compiled
def _sink(heap, bounds, size):
    """Restore a heap whose first entry may be too small."""
    place, child = 0, 1
    node, bound = heap[0], bounds[0]
    while child < size:
        if child + 1 < size and bounds[child + 1] > bounds[child]:
            child += 1
        if bounds[child] <= bound:
            break
        heap[place], bounds[place] = heap[child], bounds[child]
        place, child = child, 2 * child + 1
    heap[place], bounds[place] = node, bound


@compiled
def _rise(heap, bounds, size, node, bound):
    """Add an entry to a heap of this size."""
    place = size
    while place and bounds[(place - 1) // 2] < bound:
        heap[place], bounds[place] = heap[(place - 1) // 2], bounds[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place], bounds[place] = node, bound
