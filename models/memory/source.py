"""Labels ranked by what the nearest documents carry."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Float64, Int64

from longtail.models.memory.label_kernels import best_labels, scores_of_labels
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.memory.search import NO_DOCUMENT, Neighbours
from longtail.models.memory.vectors import VectorMemory
from longtail.models.ranking.top_k import Ranking


class NeighbourSource:
    """The `Source` of one batch of texts over the labels of their nearest documents."""

    def __init__(
        self,
        memory: NeighbourMemory | VectorMemory,
        neighbours: Neighbours,
        raised: Float64[np.ndarray, label] | None = None,
    ) -> None:
        """Bind the neighbours to the memory.

        Args:
            memory: Whose documents they are.
            neighbours: Of each text.
            raised: Added to the score of each label that has one; None: nothing.
        """
        self._memory = memory
        self._neighbours = neighbours
        num_labels = memory.labels.shape[1]
        self._raised = np.zeros(num_labels) if raised is None else raised

    @property
    def num_queries(self) -> int:
        """Texts of the batch."""
        return len(self._neighbours.documents)

    @property
    def num_labels(self) -> int:
        """Number of labels that any document carries; 1 where there are none."""
        return max(1, len(self._memory.carried_labels))

    def most_listed(self, rows: Int64[np.ndarray, row]) -> int:
        """Return a bound of the number of labels of one of these texts, at least 1."""
        documents = self._neighbours.take(rows).documents
        counts = np.diff(self._memory.labels.indptr)
        found = np.where(documents == NO_DOCUMENT, 0, counts[documents])
        return int(found.sum(axis=1).max(initial=1))

    def top(self, rows: Int64[np.ndarray, row], m: int) -> Ranking:
        """Return the m best labels of these texts (see `Source.top`)."""
        of_rows, memory = self._neighbours.take(rows), self._memory
        return Ranking(
            *best_labels(
                of_rows.documents, of_rows.similarities, memory.temperature, memory.labels,
                self._raised, m,
            )
        )  # fmt: skip

    def score(
        self, rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of given labels; -inf where no neighbour carries one."""
        of_rows, memory = self._neighbours.take(rows), self._memory
        return scores_of_labels(
            of_rows.documents, of_rows.similarities, memory.temperature, memory.labels,
            self._raised, labels,
        )  # fmt: skip
