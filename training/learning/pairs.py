"""The multi-label reduction: a document with t labels becomes t (document, label) pairs.

Rawat et al. 2021, section 5.2; Reddi et al. 2019, section 5, draw one of them a document instead.
The matrix of labels already is the list of pairs, row by row, so pairs are made as they are needed:
nothing but the numbers of those asked for is held.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array
from torch import Tensor

from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.learning.sampling import Pairs

Exclude = Literal["none", "positive", "document"]
"""Labels that may not be negatives of a pair: none, its own, or all of its document."""


def pairs_at(
    truth: Float32[csr_array, "document label"], numbers: Int64[np.ndarray, batch]
) -> tuple[Int64[np.ndarray, batch], Int64[np.ndarray, batch]]:
    """Return documents and labels of numbered pairs.

    Args:
        truth: Labels of the documents.
        numbers: From 0, document by document, below the number of stored entries.
    """
    documents = np.searchsorted(truth.indptr, numbers, side="right") - 1
    return documents.astype(np.int64), truth.indices[numbers].astype(np.int64)


def pair_indices(
    truth: Float32[csr_array, "document label"], documents: Int64[np.ndarray, batch]
) -> Int64[np.ndarray, pair]:
    """Return the numbers, for `pairs_at`, of all pairs of the documents, in their order."""
    starts = truth.indptr[documents].astype(np.int64)
    counts = truth.indptr[documents + 1] - starts
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())


def label_counts(truth: Float32[csr_array, "document label"]) -> Int64[np.ndarray, label]:
    """Return how many documents carry each label."""
    return np.bincount(truth.indices, minlength=truth.shape[1]).astype(np.int64)


def make_pairs(
    truth: Float32[csr_array, "document label"],
    documents: Int64[np.ndarray, batch],
    labels: Int64[np.ndarray, batch],
    exclude: Exclude,
    device: str,
) -> Pairs:
    """Return a batch of pairs with the labels that may not be their negatives.

    Args:
        truth: Labels of all documents.
        documents: Row of each pair's document.
        labels: Its positive label.
        exclude: The papers' reduction excludes "positive" alone (q_y = 0), so that other labels of
            the document may be its negatives; "document" excludes those too.
        device: Where to put them.
    """
    if exclude == "none":
        excluded = np.empty((len(labels), 0), dtype=np.int64)
    elif exclude == "positive":
        excluded = labels[:, np.newaxis]
    else:
        excluded = _padded_rows(truth, documents)
    arrays: list[Tensor] = [
        torch.from_numpy(array).to(device) for array in (documents, labels, excluded)
    ]
    return Pairs(*arrays)


def _padded_rows(
    truth: Float32[csr_array, "document label"], documents: Int64[np.ndarray, batch]
) -> Int64[np.ndarray, "batch most"]:
    counts = np.diff(truth.indptr)[documents]
    rows = np.full((len(documents), int(counts.max(initial=0))), NO_LABEL, dtype=np.int64)
    is_filled = np.arange(rows.shape[1]) < counts[:, np.newaxis]
    rows[is_filled] = truth.indices[pair_indices(truth, documents)]
    return rows
