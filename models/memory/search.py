"""The documents of a memory that are nearest to texts, exactly.

Postings (the documents of each feature) propose, and inner products of whole rows decide: these are
summed in float64 in the order of the document's features and rounded once, on every path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.matrices import Rows
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.native.library import (
    CSR,
    F32,
    FLOAT,
    HALF_CSR,
    I64,
    INT,
    Csr,
    RowsLike,
    function,
)
from longtail.models.ranking.top_k import in_row_parts

NO_DOCUMENT = -1
"""Fills a row where fewer documents than asked for share a feature with it."""
_search_nearest = function(
    "search_nearest", queries=CSR, documents=HALF_CSR, postings=HALF_CSR,
    largest=F32["postings.num_rows"], longest=FLOAT, k=INT, found=I64.out["queries.num_rows k"],
    similarities=F32.out["queries.num_rows k"],
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The documents that are nearest to each of some texts.

    Attributes:
        documents: Their numbers, nearest first, ties by the smaller number; `NO_DOCUMENT` where
            fewer share a feature with the text.
        similarities: Inner products of tf-idf rows, which are cosines but for rounding; 0 at
            `NO_DOCUMENT`.
    """

    documents: Int64[np.ndarray, "text neighbour"]
    similarities: Float32[np.ndarray, "text neighbour"]

    def take(self, rows: Sequence[int] | Int64[np.ndarray, row] | slice) -> Neighbours:
        """Return those of some of the texts."""
        return Neighbours(self.documents[rows], self.similarities[rows])

    def first(self, num_neighbours: int) -> Neighbours:
        """Return the nearest neighbours of each text; all where there are no more."""
        return Neighbours(self.documents[:, :num_neighbours], self.similarities[:, :num_neighbours])

    @classmethod
    def joined(cls, parts: Sequence[Neighbours]) -> Neighbours:
        """Return those of the texts of several batches, in their order."""
        return cls(
            np.concatenate([part.documents for part in parts]),
            np.concatenate([part.similarities for part in parts]),
        )


def nearest_documents(
    memory: NeighbourMemory,
    features: RowsLike,
    num_neighbours: int,
    *,
    num_threads: int = 1,
) -> Neighbours:
    """Return the documents of largest inner product with each text, exactly.

    A text has the same neighbours and similarities, to the bit, whatever batch it comes in.

    Args:
        memory: The documents.
        features: The texts' features; no value below 0.
        num_neighbours: At least 1.
        num_threads: That search at the same time, where there are many texts.
    """
    documents, postings = memory.documents.native, memory.postings.native
    largest, longest = memory.largest_values, memory.longest_norm  # made before there are threads
    parts = in_row_parts(
        lambda part: _nearest_of_rows(
            Rows.part_of(features, part), documents, postings, largest, longest, num_neighbours
        ),
        len(features.indptr) - 1,
        num_threads,
    )
    found = [Neighbours(*part) for part in parts]
    return found[0] if len(found) == 1 else Neighbours.joined(found)


def _nearest_of_rows(
    queries: Rows,
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
    found = np.empty((len(queries.indptr) - 1, k), dtype=np.int64)
    similarities = np.empty(found.shape, dtype=np.float32)
    _search_nearest(queries, documents, postings, largest, longest, k, found, similarities)
    return found, similarities
