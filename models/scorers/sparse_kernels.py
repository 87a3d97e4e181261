"""Scores and best labels of tf-idf rows under sparse linear classifiers: calls of `sparse.c`.

The weights come by feature, so a row costs what its own features weigh, and a pass over the labels.
A label's score is summed in float32 in the order of the row's features, whoever asks; sums may be
kept for who asks again.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.native.library import CSR, F32, I64, INT, Csr, function

_best_of_rows = function(
    "sparse_best_of_rows", features=CSR, weights=CSR, bias=F32["num_labels"], num_labels=INT,
    k=INT, labels=I64.out["features.num_rows k"], scores=F32.out["features.num_rows k"],
)  # fmt: skip
_scores_of_labels = function(
    "sparse_scores_of_labels", features=CSR, weights=CSR, bias=F32["num_labels"], num_labels=INT,
    labels=I64["features.num_rows m"], m=INT, scores=F32.out["features.num_rows m"],
)  # fmt: skip
_sum_up = function(
    "sparse_sum_up", features=CSR, weights=CSR, rows=I64["num_rows"], num_rows=INT,
    sums=F32.out["place num_labels"], num_labels=INT,
)  # fmt: skip
_best_of_sums = function(
    "sparse_best_of_sums", sums=F32["place num_labels"], rows=I64["num_rows"], num_rows=INT,
    bias=F32["num_labels"], num_labels=INT, k=INT, labels=I64.out["num_rows k"],
    scores=F32.out["num_rows k"],
)  # fmt: skip


def best_of_rows(
    features: Float32[csr_array, "row feature"],
    weights: Float32[csr_array, "feature label"] | Csr,
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
    _best_of_rows(features, weights, bias, len(bias), k, labels, scores)
    return labels, scores


def scores_of_labels(
    features: Float32[csr_array, "row feature"],
    weights: Float32[csr_array, "feature label"] | Csr,
    bias: Float32[np.ndarray, label],
    labels: Int64[np.ndarray, "row m"],
) -> Float32[np.ndarray, "row m"]:
    """Return the scores of given labels of each row, to the bit those of `best_of_rows`."""
    scores = np.empty(labels.shape, dtype=np.float32)
    _scores_of_labels(features, weights, bias, len(bias), labels, labels.shape[1], scores)
    return scores


def sum_up(
    features: Float32[csr_array, "row feature"],
    weights: Float32[csr_array, "feature label"] | Csr,
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
    _sum_up(features, weights, rows, len(rows), sums, sums.shape[1])


def best_of_sums(
    sums: Float32[np.ndarray, "place label"],
    rows: Int64[np.ndarray, row],
    bias: Float32[np.ndarray, label],
    k: int,
) -> tuple[Int64[np.ndarray, "row k"], Float32[np.ndarray, "row k"]]:
    """Return what `best_of_rows` does, to the bit, of rows that `sum_up` has summed."""
    labels = np.empty((len(rows), k), dtype=np.int64)
    scores = np.empty((len(rows), k), dtype=np.float32)
    _best_of_sums(sums, rows, len(rows), bias, len(bias), k, labels, scores)
    return labels, scores
