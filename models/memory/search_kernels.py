"""The documents of largest inner product with sparse rows, exactly: calls of `search.c`.

Postings (the documents of each feature) propose, and inner products of whole rows decide: these are
summed in float64 in the order of the document's features and rounded once, whoever asks.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.native.library import CSR, F32, FLOAT, HALF_CSR, I64, INT, Csr, function

NO_DOCUMENT = -1
"""Fills a row where fewer documents than asked for share a feature with it."""
_search_nearest = function(
    "search_nearest", queries=CSR, documents=HALF_CSR, postings=HALF_CSR,
    largest=F32["postings.num_rows"], longest=FLOAT, k=INT, found=I64.out["queries.num_rows k"],
    similarities=F32.out["queries.num_rows k"],
)  # fmt: skip


def nearest_of_rows(
    queries: Float32[csr_array, "row feature"],
    documents: Csr,
    postings: Csr,
    largest: Float32[np.ndarray, feature],
    longest: float,
    k: int,
) -> tuple[Int64[np.ndarray, "row k"], Float32[np.ndarray, "row k"]]:
    """Return the k documents of largest inner product with each row, and these products.

    Only positive products count; ties by the smaller document number. Features are read in falling
    order of squared weight to number of postings. What those not yet read can add to any document
    is at most their norm times that of the longest document, and at most the sum of their weights
    times each one's largest value; so once that is small, all that can still be among the best are
    a few documents, which are compared feature by feature, and the long postings of common words
    are never read.

    Args:
        queries: No value below 0.
        documents: In half precision.
        postings: The documents transposed.
        largest: Value of each feature in any document.
        longest: Norm of any document, at most.
        k: At least 1.
    """
    found = np.empty((queries.shape[0], k), dtype=np.int64)
    similarities = np.empty((queries.shape[0], k), dtype=np.float32)
    _search_nearest(queries, documents, postings, largest, longest, k, found, similarities)
    return found, similarities
