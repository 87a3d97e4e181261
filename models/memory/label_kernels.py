"""Scores of the labels that nearest documents carry: calls of `label.c`.

What a neighbour counts for is a softmax over the neighbours of a text (RAE-XMC, arXiv:2502.10615):
exp(similarity / temperature), divided by the sum of these. A label's score is the logarithm of the
sum over the neighbours that carry it. Sums are in float64 in the order of the neighbours, and the
score is rounded once, whoever asks.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.native.library import CSR, F32, F64, FLOAT, I64, INT, Converter, function

_NEIGHBOURS: dict[str, Converter] = {
    "documents": I64["num_rows num_neighbours"], "similarities": F32["num_rows num_neighbours"],
    "num_neighbours": INT, "temperature": FLOAT, "carried": CSR, "raised": F64["num_labels"],
    "num_labels": INT, "num_rows": INT, "m": INT,
}  # fmt: skip
_label_best = function(
    "label_best", **_NEIGHBOURS, labels=I64.out["num_rows m"], scores=F32.out["num_rows m"]
)
_label_scores = function(
    "label_scores", **_NEIGHBOURS, labels=I64["num_rows m"], scores=F32.out["num_rows m"]
)
_label_shares = function(
    "label_shares", documents=I64["num_neighbours"], similarities=F32["num_neighbours"],
    num_neighbours=INT, temperature=FLOAT, shares=F64.out["num_neighbours"],
)  # fmt: skip


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
    found = np.empty((len(documents), m), dtype=np.int64)
    scores = np.empty((len(documents), m), dtype=np.float32)
    _label_best(
        documents, similarities, documents.shape[1], temperature, labels, raised, len(raised),
        len(documents), m, found, scores,
    )  # fmt: skip
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
    scores = np.empty(asked.shape, dtype=np.float32)
    _label_scores(
        documents, similarities, documents.shape[1], temperature, labels, raised, len(raised),
        len(documents), asked.shape[1], np.ascontiguousarray(asked), scores,
    )  # fmt: skip
    return scores


def shares_of(
    documents: Int64[np.ndarray, neighbour],
    similarities: Float32[np.ndarray, neighbour],
    temperature: float,
) -> Float64[np.ndarray, neighbour]:
    """Return what each neighbour of one text counts for; 0 for `NO_DOCUMENT`, 1 in all."""
    shares = np.empty(len(documents), dtype=np.float64)
    _label_shares(documents, similarities, len(documents), temperature, shares)
    return shares
