"""Labels ranked by what the nearest documents carry.

What a neighbour counts for is a softmax over the neighbours of a text (RAE-XMC, arXiv:2502.10615):
exp(similarity / temperature), divided by the sum of these. A label's score is the logarithm of the
sum over the neighbours that carry it. Sums are in float64 in the order of the neighbours, and the
score is rounded once, on every path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64

from longtail.models.memory.memory import NeighbourMemory
from longtail.models.memory.search import Neighbours
from longtail.models.memory.vectors import VectorMemory
from longtail.models.native.library import CSR, F32, F64, FLOAT, I64, INT, Converter, function
from longtail.models.ranking.top_k import Ranking, nothing

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
            neighbours: The nearest documents of each text.
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
        return max(1, len(self.labels))

    @property
    def labels(self) -> Int64[np.ndarray, carried]:
        """The labels that any document carries, rising."""
        return self._memory.carried_labels

    def listed(self, part: slice) -> Ranking:
        """Return all labels of consecutive texts, in any order (see `Ranking`)."""
        found = self._memory.nums_of_labels[self._neighbours.documents[part]]
        return self.top(part, int(found.sum(axis=1).max(initial=1)))

    def top(self, rows: Int64[np.ndarray, row] | slice, m: int) -> Ranking:
        """Return the m best labels of these texts (see `Source.top`)."""
        passed = self._passed(rows)
        best = nothing(len(passed[0]), m)
        _label_best(*passed, m, best.labels, best.scores)
        return best

    def score(
        self, rows: Int64[np.ndarray, row], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of given labels; -inf where no neighbour carries one."""
        scores = np.empty(labels.shape, dtype=np.float32)
        labels = np.ascontiguousarray(labels)
        _label_scores(*self._passed(rows), labels.shape[1], labels, scores)
        return scores

    def _passed(self, rows: Int64[np.ndarray, row] | slice) -> tuple[Any, ...]:
        """Return `_NEIGHBOURS` but for m."""
        found, memory, raised = self._neighbours.take(rows), self._memory, self._raised
        documents, similarities = found.documents, found.similarities
        return (
            documents, similarities, documents.shape[1], memory.temperature, memory.native_labels,
            raised, len(raised), len(documents),
        )  # fmt: skip


def shares_of(
    documents: Int64[np.ndarray, neighbour],
    similarities: Float32[np.ndarray, neighbour],
    temperature: float,
) -> Float64[np.ndarray, neighbour]:
    """Return what each neighbour of one text counts for; 0 for `NO_DOCUMENT`, 1 in all."""
    shares = np.empty(len(documents), dtype=np.float64)
    _label_shares(documents, similarities, len(documents), temperature, shares)
    return shares
