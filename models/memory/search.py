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
from longtail.models.native.library import CSR, F32, FLOAT, HALF_CSR, I64, INT, RowsLike, function
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

    Only positive products count; ties by the smaller document number. Features are read in falling
    order of squared weight to number of postings. What those not yet read can add to any document
    is at most their norm times that of the longest document, and at most the sum of their weights
    times each one's largest value; so once that is small, all that can still be among the best are
    a few documents, which are compared feature by feature, and the long postings of common words
    are never read.

    Args:
        memory: The documents.
        features: The texts' features; no value below 0.
        num_neighbours: At least 1.
        num_threads: That search at the same time, where there are many texts.
    """
    documents, postings = memory.documents.native, memory.postings.native
    largest, longest = memory.largest_values, memory.longest_norm  # made before there are threads
    shape = (len(features.indptr) - 1, num_neighbours)
    found = Neighbours(np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32))

    def search(rows: slice) -> None:
        of_rows = found.take(rows)
        _search_nearest(
            Rows.part_of(features, rows), documents, postings, largest, longest, num_neighbours,
            of_rows.documents, of_rows.similarities,
        )  # fmt: skip

    in_row_parts(search, shape[0], num_threads)
    return found
