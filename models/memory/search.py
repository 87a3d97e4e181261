"""The documents of a memory that are nearest to texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.memory.memory import NeighbourMemory
from longtail.models.memory.search_kernels import nearest_of_rows
from longtail.models.ranking.top_k import in_row_parts


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

    def take(self, rows: Sequence[int] | Int64[np.ndarray, row]) -> Neighbours:
        """Return those of some of the texts."""
        return Neighbours(self.documents[rows], self.similarities[rows])

    def first(self, num_neighbours: int) -> Neighbours:
        """Return so many of each text; all where there are no more."""
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
    features: Float32[csr_array, "text feature"],
    num_neighbours: int,
    *,
    num_threads: int = 1,
) -> Neighbours:
    """Return the documents of largest inner product with each text, exactly.

    A text has the same neighbours and similarities, to the bit, whatever batch it comes in.

    Args:
        memory: The documents.
        features: Of the texts; no value below 0.
        num_neighbours: At least 1.
        num_threads: That search at the same time, where there are many texts.
    """
    documents, postings = memory.documents.native, memory.postings.native
    largest, longest = memory.largest_values, memory.longest_norm  # made before there are threads
    parts = in_row_parts(
        lambda part: nearest_of_rows(
            features[part], documents, postings, largest, longest, num_neighbours
        ),
        features.shape[0],
        num_threads,
    )
    return Neighbours.joined([Neighbours(*part) for part in parts])
