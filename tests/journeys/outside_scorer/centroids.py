"""A scorer from outside: cosines of texts with the mean document of each label (Rocchio)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from longtail.models.kinds.placement import Placement
from longtail.models.kinds.registry import register
from longtail.models.kinds.scorer import Scorer, ScorerKind
from longtail.models.matrices import stored_csr
from longtail.models.names import CorrectionName
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.ranking.threshold_algorithm import Sources
from longtail.models.ranking.top_k import NO_LABEL, Ranking, top_of_scores
from longtail.models.results import Evidence, SimilarDocument
from longtail.models.scorers.sparse import SparseModel

CENTROIDS = "centroids"


class Centroids(NamedTuple):
    """The mean document of each label, and the id of the document that is nearest to it."""

    means: csr_array
    nearest: tuple[str, ...]


class CosineSource:
    """Scores all labels of a batch; those without a common feature have no score."""

    def __init__(self, scores: np.ndarray) -> None:
        self._scores = np.where(scores > 0, scores, -np.inf).astype(np.float32)
        self.num_queries, self.num_labels = scores.shape

    def top(self, rows: np.ndarray, m: int) -> Ranking:
        return top_of_scores(self._scores[rows], m)

    def score(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        scores = np.take_along_axis(self._scores[rows], np.maximum(labels, 0), axis=1)
        return np.where(labels == NO_LABEL, np.float32(-np.inf), scores)


class CentroidScorer(Scorer):
    """Ranks by the cosine, and names the document that is nearest to a label's mean."""

    def __init__(self, model: Centroids, log_priors: np.ndarray) -> None:
        self._model = model
        self._log_priors = log_priors

    @property
    def labels(self) -> np.ndarray:
        return np.flatnonzero(np.diff(self._model.means.indptr)).astype(np.int64)

    def _cosines(self, batch: TextBatch) -> np.ndarray:
        return batch.once(CENTROIDS, lambda: batch.features @ self._model.means.T).toarray()

    def sources(self, batch: TextBatch, correction: CorrectionName, tail_dial: float) -> Sources:
        del correction
        cosines, dial = self._cosines(batch), np.float32(tail_dial)
        raised = np.exp(-dial * self._log_priors) if dial else np.float32(1)
        return [CosineSource(cosines * raised)]

    def evidence(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, Evidence]:
        cosines = self._cosines(batch)[text]
        return {
            label: Evidence(
                documents=(SimilarDocument(self._model.nearest[label], float(cosines[label]), 1.0),)
            )
            for label in labels
            if cosines[label] > 0
        }


class CentroidKind(ScorerKind):
    """Stores sparse rows, and the ids of documents."""

    name = CENTROIDS
    may_find_nothing = True

    def arrays(self, model: Centroids) -> dict[str, np.ndarray]:
        means = model.means
        return {"data": means.data, "indices": means.indices, "indptr": means.indptr}

    def texts(self, model: Centroids) -> dict[str, str]:
        return {"centroids.txt": "\n".join(model.nearest)}

    def read(
        self,
        arrays: Mapping[str, np.ndarray],
        texts: Mapping[str, str],
        sparse: SparseModel,
        num_labels: int,
    ) -> Centroids:
        ids = texts["centroids.txt"].split("\n")
        shape = (len(ids), len(sparse.tfidf.tokens))
        means = stored_csr(arrays["data"], arrays["indices"], arrays["indptr"], shape)
        means.resize((num_labels, shape[1]))  # labels may have been added
        return Centroids(means, (*ids, *[""] * (num_labels - len(ids))))

    def make(self, model: Centroids, parts: ModelParts, placement: Placement) -> Scorer:
        del placement
        return CentroidScorer(model, parts.catalogue.log_priors)


register(CentroidKind())
