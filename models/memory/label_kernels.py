"""Scores of the labels that nearest documents carry: the compiled loops.

What a neighbour counts for is a softmax over the neighbours of a text (RAE-XMC, arXiv:2502.10615):
exp(similarity / temperature), divided by the sum of these. A label's score is the logarithm of the
sum over the neighbours that carry it. Sums are in float64 in the order of the neighbours, and the
score is rounded once, whoever asks.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.jit import compiled
from longtail.models.memory.search_kernels import NO_DOCUMENT
from longtail.models.ranking.top_k import NO_LABEL


def best_labels(
    documents: Int64[np.ndarray, "row neighbour"],
    similarities: Float32[np.ndarray, "row neighbour"],
    temperature: float,
    labels: Float32[csr_array, "document label"],
    raised: Float64[np.ndarray, label],
    m: int,
) -> tuple[Int64[np.ndarray, "row m"], Float32[np.ndarray, "row m"]]:
    """Return the m best labels of each row and their scores; ties by the smaller label index.

    Args:
        documents: Numbers of the neighbours, nearest first; `NO_DOCUMENT` behind the last.
        similarities: Of each.
        temperature: Above 0, and not so small that a share gets 0.
        labels: That documents carry.
        raised: Added to the score of each label.
        m: At least 1; the rest of a row is filled with `NO_LABEL` and -inf.
    """
    found = np.full((len(documents), m), NO_LABEL, dtype=np.int64)
    scores = np.full((len(documents), m), -np.inf, dtype=np.float32)
    _best_labels(
        (documents, similarities, temperature),
        (labels.indptr, labels.indices),
        raised,
        found,
        scores,
    )
    return found, scores


def scores_of_labels(
    documents: Int64[np.ndarray, "row neighbour"],
    similarities: Float32[np.ndarray, "row neighbour"],
    temperature: float,
    labels: Float32[csr_array, "document label"],
    raised: Float64[np.ndarray, label],
    asked: Int64[np.ndarray, "row m"],
) -> Float32[np.ndarray, "row m"]:
    """Return the scores of given labels, to the bit those of `best_labels`; -inf for `NO_LABEL`."""
    scores = np.full(asked.shape, -np.inf, dtype=np.float32)
    _scores_of_labels(
        (documents, similarities, temperature),
        (labels.indptr, labels.indices),
        raised,
        asked,
        scores,
    )
    return scores


def shares_of(
    documents: Int64[np.ndarray, neighbour],
    similarities: Float32[np.ndarray, neighbour],
    temperature: float,
) -> Float64[np.ndarray, neighbour]:
    """Return what each neighbour of one text counts for; 0 for `NO_DOCUMENT`, 1 in all."""
    shares = np.zeros(len(documents), dtype=np.float64)
    weights, total = _weights_of(documents, similarities, temperature)
    shares[: len(weights)] = weights / total
    return shares


@compiled
def _best_labels(neighbours, labels, raised, found, scores):
    totals = np.zeros(len(raised))
    for row in range(len(scores)):
        carried, total = _add_up(neighbours, row, labels, totals)
        carried.sort()
        points = np.empty(len(carried), dtype=np.float32)
        for i in range(len(carried)):
            points[i] = _score(totals[carried[i]], total, raised[carried[i]])
        # A merge sort keeps the order of equal ones.
        order = np.argsort(-points, kind="mergesort")[: found.shape[1]]
        found[row, : len(order)] = carried[order]
        scores[row, : len(order)] = points[order]
        totals[carried] = 0


@compiled
def _scores_of_labels(neighbours, labels, raised, asked, scores):
    totals = np.zeros(len(raised))
    for row in range(len(scores)):
        carried, total = _add_up(neighbours, row, labels, totals)
        for place in range(asked.shape[1]):
            label = asked[row, place]
            if label != NO_LABEL and totals[label] > 0:
                scores[row, place] = _score(totals[label], total, raised[label])
        totals[carried] = 0


@compiled
def _add_up(neighbours, row, labels, totals):
    """Add each neighbour's weight to its labels' totals.

    Returns these labels, each once, and the sum of all weights.
    """
    documents = neighbours[0][row]
    starts, indices = labels
    weights, total = _weights_of(documents, neighbours[1][row], neighbours[2])
    most = 0
    for i in range(len(weights)):
        most += starts[documents[i] + 1] - starts[documents[i]]
    carried = np.empty(most, dtype=np.int64)
    size = 0
    for i in range(len(weights)):
        for j in range(starts[documents[i]], starts[documents[i] + 1]):
            label = indices[j]
            if totals[label] == 0:
                carried[size] = label
                size += 1
            totals[label] += weights[i]
    return carried[:size], total


@compiled
def _weights_of(documents, similarities, temperature):
    """Return exp(similarity / temperature) of each neighbour, that of the first being 1; and sum.

    A label that all carry has a total that is this sum to the bit, so that its share is 1.
    """
    size = 0
    while size < len(documents) and documents[size] != NO_DOCUMENT:
        size += 1
    weights = np.empty(size)
    total = 0.0
    for i in range(size):
        difference = np.float64(similarities[i]) - np.float64(similarities[0])
        weights[i] = np.exp(difference / temperature)
        total += weights[i]
    return weights, total


@compiled
def _score(weight, total, raised):
    return np.float32(np.log(weight / total) + raised)
