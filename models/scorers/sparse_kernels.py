"""Scores and best labels of tf-idf rows under sparse linear classifiers: the compiled loops.

The weights come by feature, so a row costs what its own features weigh, and a pass over the labels.
A label's score is summed in float32 in the order of the row's features, whoever asks; sums may be
kept for who asks again.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.jit import compiled


def best_of_rows(
    features: Float32[csr_array, "row feature"],
    weights: Float32[csr_array, "feature label"],
    bias: Float32[np.ndarray, label],
    k: int,
) -> tuple[Int64[np.ndarray, "row k"], Float32[np.ndarray, "row k"]]:
    """Return the k best labels of each row and their scores; ties by the smaller label index.

    Args:
        features: What to score.
        weights: Of every label, by feature.
        bias: Of every label.
        k: From 1 to the number of labels.
    """
    labels = np.empty((features.shape[0], k), dtype=np.int64)
    scores = np.empty((features.shape[0], k), dtype=np.float32)
    _best_of_rows(
        (features.indptr, features.indices, features.data),
        (weights.indptr, weights.indices, weights.data),
        bias,
        labels,
        scores,
    )
    return labels, scores


def scores_of_labels(
    features: Float32[csr_array, "row feature"],
    weights: Float32[csr_array, "feature label"],
    bias: Float32[np.ndarray, label],
    labels: Int64[np.ndarray, "row m"],
) -> Float32[np.ndarray, "row m"]:
    """Return the scores of given labels of each row, to the bit those of `best_of_rows`."""
    scores = np.empty(labels.shape, dtype=np.float32)
    _scores_of_labels(
        (features.indptr, features.indices, features.data),
        (weights.indptr, weights.indices, weights.data),
        bias,
        labels,
        scores,
    )
    return scores


def sum_up(
    features: Float32[csr_array, "row feature"],
    weights: Float32[csr_array, "feature label"],
    rows: Int64[np.ndarray, row],
    sums: Float32[np.ndarray, "place label"],
) -> None:
    """Add the inner product of each row with every label to the sums in its place.

    Args:
        features: What to score.
        weights: Of every label, by feature.
        rows: Place of each of these rows among the sums.
        sums: 0 in these places.
    """
    _sum_up(
        (features.indptr, features.indices, features.data),
        (weights.indptr, weights.indices, weights.data),
        rows,
        sums,
    )


def best_of_sums(
    sums: Float32[np.ndarray, "place label"],
    rows: Int64[np.ndarray, row],
    bias: Float32[np.ndarray, label],
    k: int,
) -> tuple[Int64[np.ndarray, "row k"], Float32[np.ndarray, "row k"]]:
    """Return what `best_of_rows` does, to the bit, of rows that `sum_up` has summed."""
    labels = np.empty((len(rows), k), dtype=np.int64)
    scores = np.empty((len(rows), k), dtype=np.float32)
    _best_of_sums(sums, rows, bias, labels, scores)
    return labels, scores


@compiled
def _sum_up(features, weights, rows, sums):
    for row in range(len(rows)):
        _add_up(features, row, weights, sums[rows[row]])


@compiled
def _best_of_sums(sums, rows, bias, labels, scores):
    for row in range(len(rows)):
        _best(sums[rows[row]], bias, labels[row], scores[row])


@compiled
def _best_of_rows(features, weights, bias, labels, scores):
    totals = np.zeros(len(bias), dtype=np.float32)
    for row in range(len(labels)):
        _add_up(features, row, weights, totals)
        _best(totals, bias, labels[row], scores[row])
        totals[:] = 0


@compiled
def _best(totals, bias, labels, scores):
    """Write the best labels of one row and their scores."""
    size = 0
    for label in range(len(bias)):
        score = totals[label] + bias[label]
        if size < len(labels):
            labels[size], scores[size] = label, score
            size += 1
            if size == len(labels):
                for place in range(size // 2 - 1, -1, -1):
                    _sink(labels, scores, place, size)
        elif score > scores[0]:  # a later label loses a tie
            labels[0], scores[0] = label, score
            _sink(labels, scores, 0, size)
    for last in range(size - 1, 0, -1):  # the worst goes last, until all are in order
        _swap(labels, scores, 0, last)
        _sink(labels, scores, 0, last)


@compiled
def _scores_of_labels(features, weights, bias, labels, scores):
    totals = np.zeros(len(bias), dtype=np.float32)
    for row in range(len(labels)):
        _add_up(features, row, weights, totals)
        for place in range(labels.shape[1]):
            label = labels[row, place]
            scores[row, place] = totals[label] + bias[label]
        totals[:] = 0


@compiled
def _add_up(features, row, weights, totals):
    """Add the inner products of a row with every label to the totals."""
    indptr, indices, data = features
    weight_indptr, weight_indices, weight_data = weights
    for i in range(indptr[row], indptr[row + 1]):
        value = data[i]
        for j in range(weight_indptr[indices[i]], weight_indptr[indices[i] + 1]):
            totals[weight_indices[j]] += value * weight_data[j]


@compiled
def _sink(labels, scores, place, size):
    """Restore the heap below a place: every label is worse than those below it."""
    while True:
        worst = place
        for below in (2 * place + 1, 2 * place + 2):
            if below < size and (
                scores[below] < scores[worst]
                or (scores[below] == scores[worst] and labels[below] > labels[worst])
            ):
                worst = below
        if worst == place:
            return
        _swap(labels, scores, place, worst)
        place = worst


@compiled
def _swap(labels, scores, first, second):
    labels[first], labels[second] = labels[second], labels[first]
    scores[first], scores[second] = scores[second], scores[first]
