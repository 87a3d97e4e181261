"""The scorers of the nearest documents, which say themselves why.

`neighbours` finds documents by the words that they share with a text, `dense_neighbours` by the
vectors of an encoder, `word_neighbours` by those of `word_vectors`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.kinds.placement import Placement, on_device
from longtail.models.kinds.scorer import Scorer, ScorerKind
from longtail.models.kinds.word_vectors import vectors_of
from longtail.models.memory.memory import MAPPED, NeighbourMemory
from longtail.models.memory.search import Neighbours, nearest_documents
from longtail.models.memory.source import NeighbourSource, shares_of
from longtail.models.memory.vectors import MAPPED as MAPPED_VECTORS
from longtail.models.memory.vectors import ByteVectors, VectorMemory
from longtail.models.names import (
    DENSE_NEIGHBOURS,
    NEIGHBOURS,
    WORD_NEIGHBOURS,
    WORD_VECTORS,
    CorrectionName,
)
from longtail.models.parts.batches import NEAREST_SIMILARITY, TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.ranking.threshold_algorithm import Sources
from longtail.models.results import Evidence, SimilarDocument
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.word_vectors import WordVectors

_MAX_DOCUMENTS = 3
"""That are named as evidence for a label."""


class NeighboursScorer(Scorer):
    """Scores labels by the nearest documents that carry them (see `longtail.models.memory`)."""

    def __init__(
        self,
        memory: NeighbourMemory | VectorMemory,
        log_priors: Float32[np.ndarray, label],
        num_threads: int = 1,
    ) -> None:
        """Take the documents.

        Args:
            memory: The documents with their labels.
            log_priors: log pi of each label of the catalogue, in nats.
            num_threads: That search for many texts at the same time.
        """
        self._memory = memory
        self._log_priors = log_priors
        self._num_threads = num_threads

    @property
    def labels(self) -> Int64[np.ndarray, covered]:
        """The labels that a document carries."""
        return self._memory.carried_labels

    def sources(self, batch: TextBatch, correction: CorrectionName, tail_dial: float) -> Sources:
        """Return the source of its scores: log-shares of neighbours, less tau log pi_y."""
        assert correction == "none"
        raised = -tail_dial * self._log_priors.astype(np.float64) if tail_dial else None
        return [NeighbourSource(self._memory, self._nearest(batch), raised)]

    def evidence(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, Evidence]:
        """Return the nearest documents that carry each label."""
        found = {label: self.carried_by(batch, text, label)[:_MAX_DOCUMENTS] for label in labels}
        return {label: Evidence(documents=tuple(some)) for label, some in found.items() if some}

    def carried_by(self, batch: TextBatch, text: int, label: int) -> list[SimilarDocument]:
        """Return the neighbours of a text that carry a label, nearest first.

        Args:
            batch: The texts.
            text: Number of one of them.
            label: Index of the label; one that no neighbour carries has no documents.
        """
        memory, neighbours = self._memory, self._nearest(batch)
        documents, similarities = neighbours.documents[text], neighbours.similarities[text]
        shares = shares_of(documents, similarities, memory.temperature)
        carriers = csr_array(memory.labels[:, [label]]).nonzero()[0]
        carrying = np.flatnonzero(np.isin(documents, carriers))
        total = float(shares[carrying].sum())
        return [
            SimilarDocument(
                id=memory.ids[documents[place]],
                similarity=float(similarities[place]),
                share=float(shares[place]) / total,
            )
            for place in carrying.tolist()
        ]

    def _nearest(self, batch: TextBatch) -> Neighbours:
        """Return the nearest documents of each text, which also say how familiar the text is."""

        def find() -> Neighbours:
            memory = self._memory
            assert isinstance(memory, NeighbourMemory)
            found = nearest_documents(
                memory, batch.feature_rows, memory.num_neighbours, num_threads=self._num_threads
            )
            if found.similarities.shape[1]:
                batch.once(NEAREST_SIMILARITY, lambda: found.similarities[:, 0])
            return found

        return batch.once(NEIGHBOURS, find)


class _VectorNeighboursScorer(NeighboursScorer):
    """The same by the cosines of vectors."""

    def __init__(
        self,
        memory: VectorMemory,
        log_priors: Float32[np.ndarray, label],
        num_threads: int = 1,
        index_device: str = "cpu",
    ) -> None:
        """Take the documents.

        Args:
            memory: The documents with their labels.
            log_priors: log pi of each label of the catalogue, in nats.
            num_threads: That search for many texts at the same time, on a CPU.
            index_device: Where vectors are searched (see `InnerProductIndex`); those that are
                divided into clusters are searched on the CPU.
        """
        super().__init__(memory, log_priors, num_threads)
        is_divided = memory.clusters is not None
        self._on_device = None if is_divided else on_device(memory.vectors, index_device)

    @abstractmethod
    def _queries(self, batch: TextBatch) -> ByteVectors:
        """Return the vectors of texts."""

    def _found(self, batch: TextBatch, name: str) -> Neighbours:
        def find() -> Neighbours:
            memory = self._memory
            assert isinstance(memory, VectorMemory)
            queries = self._queries(batch)
            if self._on_device is not None:
                return self._on_device.nearest(queries, memory.num_neighbours)
            return memory.nearest(queries, num_threads=self._num_threads)

        return batch.once(name, find)


class DenseNeighboursScorer(_VectorNeighboursScorer):
    """By the vectors of an encoder; it reads a text as the encoder does."""

    def prepare(self, batch: TextBatch) -> None:
        """Do nothing: it reads the encoder's vectors alone."""

    def known_tokens(self, batch: TextBatch, *, is_alone: bool) -> Int64[np.ndarray, text]:
        """Return the tokens that the encoder knows."""
        del is_alone
        return batch.tokens.num_known

    def _queries(self, batch: TextBatch) -> ByteVectors:
        return ByteVectors.rounded(batch.vectors)

    def _nearest(self, batch: TextBatch) -> Neighbours:
        return self._found(batch, DENSE_NEIGHBOURS)


class WordNeighboursScorer(_VectorNeighboursScorer):
    """By the vectors of `word_vectors`."""

    def __init__(
        self,
        memory: VectorMemory,
        words: WordVectors,
        log_priors: Float32[np.ndarray, label],
        placement: Placement,
    ) -> None:
        """Take the documents, and what encodes texts (see `DenseNeighboursScorer`)."""
        super().__init__(memory, log_priors, placement.num_threads, placement.index_device)
        self._words = words

    def _queries(self, batch: TextBatch) -> ByteVectors:
        return vectors_of(self._words, batch)

    def _nearest(self, batch: TextBatch) -> Neighbours:
        return self._found(batch, WORD_NEIGHBOURS)


class _MemoryKind(ScorerKind):
    """The documents that a model remembers."""

    may_find_nothing = True
    keeps_documents = True

    def arrays(self, model: Any) -> dict[str, np.ndarray]:
        """Return the documents and their labels."""
        found: dict[str, np.ndarray] = model.to_arrays()
        return found

    def texts(self, model: Any) -> dict[str, str]:
        """Return the ids of the documents."""
        return {f"{self.name}.json": model.ids_to_json()}

    def read(
        self,
        arrays: Mapping[str, np.ndarray],
        texts: Mapping[str, str],
        sparse: SparseModel,
        num_labels: int,
    ) -> Any:
        """Return the documents."""
        return self._read(dict(arrays), texts[f"{self.name}.json"], sparse, num_labels)

    def _read(
        self, arrays: dict[str, np.ndarray], ids: str, sparse: SparseModel, num_labels: int
    ) -> Any:
        del sparse
        return VectorMemory.from_arrays(arrays, ids, num_labels)


class NeighboursKind(_MemoryKind):
    """Documents by the words that they share with a text."""

    name = NEIGHBOURS
    mapped = MAPPED

    def _read(
        self, arrays: dict[str, np.ndarray], ids: str, sparse: SparseModel, num_labels: int
    ) -> NeighbourMemory:
        return NeighbourMemory.from_arrays(arrays, ids, len(sparse.tfidf.tokens), num_labels)

    def make(self, model: NeighbourMemory, parts: ModelParts, placement: Placement) -> Scorer:
        """Return the scorer."""
        return NeighboursScorer(model, parts.catalogue.log_priors, placement.num_threads)


class DenseNeighboursKind(_MemoryKind):
    """Documents by the cosines of the encoder's vectors."""

    name = DENSE_NEIGHBOURS
    needs_encoder = True
    mapped = MAPPED_VECTORS

    def make(self, model: VectorMemory, parts: ModelParts, placement: Placement) -> Scorer:
        """Return the scorer."""
        log_priors = parts.catalogue.log_priors
        threads, device = placement.num_threads, placement.index_device
        return DenseNeighboursScorer(model, log_priors, threads, device)


class WordNeighboursKind(_MemoryKind):
    """Documents by the cosines of the vectors of `word_vectors`, without which it has no model."""

    name = WORD_NEIGHBOURS
    mapped = MAPPED_VECTORS

    def model_of(self, parts: ModelParts) -> VectorMemory | None:
        """Return the documents, where there is what encodes texts."""
        found: VectorMemory | None = super().model_of(parts)
        return found if WORD_VECTORS in parts.models else None

    def make(self, model: VectorMemory, parts: ModelParts, placement: Placement) -> Scorer:
        """Return the scorer."""
        words = parts.models[WORD_VECTORS]
        return WordNeighboursScorer(model, words, parts.catalogue.log_priors, placement)
