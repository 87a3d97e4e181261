"""The scorer `word_vectors`: cosines of texts and labels, both encoded as sums of word vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.explain import entries_of, explained_tokens
from longtail.models.kinds.placement import Placement, on_device
from longtail.models.kinds.scorer import Scorer, ScorerKind
from longtail.models.labels.catalogue import Label
from longtail.models.memory.vectors import ByteVectors
from longtail.models.names import WORD_VECTORS, CorrectionName
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.ranking.threshold_algorithm import Sources
from longtail.models.ranking.top_k import ListedSource, best_listed
from longtail.models.results import TokenExplanation
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.word_vectors import MAPPED, CosineSource, WordVectors

NUM_LISTED = 100
"""Labels of a text that a blend takes."""


def vectors_of(model: WordVectors, batch: TextBatch) -> ByteVectors:
    """Return the vectors of some texts, computed once."""
    return batch.once(WORD_VECTORS, lambda: model.encode(batch.features))


class WordVectorsScorer(Scorer):
    """Scores labels by the cosine of their vector and that of a text."""

    def __init__(
        self, model: WordVectors, log_priors: Float32[np.ndarray, label], placement: Placement
    ) -> None:
        """Take the vectors.

        Args:
            model: Vectors of words and labels.
            log_priors: log pi of each label of the catalogue, in nats.
            placement: Where labels are searched, by how many threads.
        """
        self._model, self._num_threads = model, placement.num_threads
        covered = np.flatnonzero(model.labels.scales > 0).astype(np.int64)
        is_all = len(covered) == model.labels.num_rows
        self._vectors = model.labels if is_all else model.labels.take(covered)
        self._labels = covered
        self._on_device = on_device(self._vectors, placement.index_device)
        self._log_priors = log_priors[covered].astype(np.float64)

    @property
    def labels(self) -> Int64[np.ndarray, covered]:
        """The labels with a vector."""
        return self._labels

    def sources(self, batch: TextBatch, correction: CorrectionName, tail_dial: float) -> Sources:
        """Return the source of its scores: cosines, less tau log pi_y."""
        assert correction == "none"
        raised = -tail_dial * self._log_priors if tail_dial else None
        return [self._source(batch, raised)]

    def member_sources(self, batch: TextBatch) -> Sources:
        """Return the cosines of the `NUM_LISTED` best labels."""

        def listed() -> Float32[csr_array, "text label"]:
            return best_listed(self._source(batch), NUM_LISTED)

        return [ListedSource(batch.once(f"listed {WORD_VECTORS}", listed))]

    def _source(
        self, batch: TextBatch, raised: Float64[np.ndarray, covered] | None = None
    ) -> CosineSource:
        queries = vectors_of(self._model, batch)
        return CosineSource(
            queries, self._vectors, self._labels, raised, self._num_threads, self._on_device
        )

    def contributions(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, TokenExplanation]:
        """Return what the words of a text add to the cosines."""
        model = self._model
        columns, values = entries_of(batch.feature_rows, text)
        words = model.words.take(columns)
        weighted = (values * words.scales)[:, None] * words.bytes.astype(np.float64)
        length = float(np.linalg.norm(weighted.sum(axis=0))) or 1.0
        added = {}
        for label in labels:
            if not model.labels.scales[label]:
                continue
            vector = model.labels.bytes[label] * float(model.labels.scales[label])
            added[label] = (columns.astype(np.int64), weighted @ vector / length)
        return explained_tokens(model.tfidf, batch.texts[text], added, dict.fromkeys(added, 0.0))


class WordVectorsKind(ScorerKind):
    """Vectors of words and labels."""

    name = WORD_VECTORS
    compares_texts = True
    scores_new_labels = True
    mapped = MAPPED

    def arrays(self, model: WordVectors) -> dict[str, np.ndarray]:
        """Return all vectors."""
        return model.to_arrays()

    def read(
        self,
        arrays: Mapping[str, np.ndarray],
        texts: Mapping[str, str],
        sparse: SparseModel,
        num_labels: int,
    ) -> WordVectors:
        """Return the vectors."""
        del texts
        return WordVectors.from_arrays(dict(arrays), sparse.tfidf, num_labels)

    def make(self, model: WordVectors, parts: ModelParts, placement: Placement) -> Scorer:
        """Return the scorer."""
        return WordVectorsScorer(model, parts.catalogue.log_priors, placement)

    def with_labels(self, model: WordVectors, labels: Sequence[Label]) -> WordVectors:
        """Return a model that knows more labels, by their names."""
        return model.with_labels(labels)

    def without_documents(
        self, model: WordVectors, is_unseen: Bool[np.ndarray, label]
    ) -> WordVectors:
        """Return a model as if no document had carried some labels."""
        return model.without_documents(is_unseen)
