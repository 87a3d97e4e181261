"""The scorer `neighbours`: labels of the nearest documents, which say themselves why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.memory.label_kernels import shares_of
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.memory.source import NeighbourSource
from longtail.models.names import NEIGHBOURS, CorrectionName
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.placement import Placement
from longtail.models.predict.scorer import Scorer, ScorerTraits
from longtail.models.ranking.threshold_algorithm import Sources
from longtail.models.results import CarryingDocument, Evidence, SparseParts

_MAX_DOCUMENTS = 3
"""That are named as evidence for a label."""


class NeighboursScorer:
    """Scores labels by the nearest documents that carry them (see `longtail.models.memory`)."""

    traits = ScorerTraits(reads="features")

    def __init__(self, memory: NeighbourMemory, log_priors: Float32[np.ndarray, label]) -> None:
        """Take the documents.

        Args:
            memory: They, with their labels.
            log_priors: log pi of each label of the catalogue, in nats.
        """
        self._memory = memory
        self._log_priors = log_priors

    @property
    def labels(self) -> Int64[np.ndarray, covered]:
        """The labels that a document carries."""
        return self._memory.carried_labels

    def sources(self, batch: TextBatch, correction: CorrectionName, tail_dial: float) -> Sources:
        """Return the source of its scores: log-shares of neighbours, less tau log pi_y."""
        assert correction == "none"
        raised = -tail_dial * self._log_priors.astype(np.float64)
        return [NeighbourSource(self._memory, batch.neighbours, raised)]

    def contributions(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, SparseParts]:
        """Return nothing: documents are what it reports (`carried_by`), and no tokens."""
        del batch, text, labels
        return {}

    def evidence(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, Evidence]:
        """Return the nearest documents that carry each label."""
        found = {label: self.carried_by(batch, text, label)[:_MAX_DOCUMENTS] for label in labels}
        return {label: Evidence(documents=tuple(some)) for label, some in found.items() if some}

    def carried_by(self, batch: TextBatch, text: int, label: int) -> list[CarryingDocument]:
        """Return the neighbours of a text that carry a label, nearest first.

        Args:
            batch: The texts.
            text: Number of one of them.
            label: Index of the label; one that no neighbour carries has no documents.
        """
        memory, neighbours = self._memory, batch.neighbours
        documents, similarities = neighbours.documents[text], neighbours.similarities[text]
        shares = shares_of(documents, similarities, memory.temperature)
        carriers = csr_array(memory.labels[:, [label]]).nonzero()[0]
        carrying = np.flatnonzero(np.isin(documents, carriers))
        total = float(shares[carrying].sum())
        return [
            CarryingDocument(
                document_id=memory.ids[documents[place]],
                similarity=float(similarities[place]),
                share=float(shares[place]) / total,
            )
            for place in carrying.tolist()
        ]


def make_neighbours(parts: ModelParts, placement: Placement) -> dict[str, Scorer]:
    """Return the scorer of the documents that a model remembers, if it does."""
    del placement  # the batch knows its threads
    if parts.neighbours is None:
        return {}
    return {NEIGHBOURS: NeighboursScorer(parts.neighbours, parts.catalogue.log_priors)}
