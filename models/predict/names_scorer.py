"""The scorer `names`: labels whose names are found in the text, seen in training or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.lexical.name_model import NameModel
from longtail.models.names import NAMES, CorrectionName
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.placement import Placement
from longtail.models.predict.scorer import Scorer, ScorerTraits
from longtail.models.ranking.listed import ListedSource
from longtail.models.ranking.threshold_algorithm import Sources
from longtail.models.results import Evidence, SparseParts


class NamesScorer:
    """Scores labels by how their names occur in a text; those that don't occur get no score."""

    traits = ScorerTraits(reads="names", gives_logits=True)

    def __init__(self, names: NameModel, log_priors: Float32[np.ndarray, label]) -> None:
        """Take what gives scores, and what the tail dial needs.

        Args:
            names: Which has read the texts.
            log_priors: log pi of each label of the catalogue, in nats.
        """
        self._names = names
        self._log_priors = log_priors

    @property
    def labels(self) -> Int64[np.ndarray, covered]:
        """All labels."""
        return np.arange(len(self._log_priors), dtype=np.int64)

    def sources(self, batch: TextBatch, correction: CorrectionName, tail_dial: float) -> Sources:
        """Return the source of its scores, less tau log pi_y of each label."""
        assert correction == "none"
        scores = batch.name_scores
        if tail_dial:
            raised = tail_dial * self._log_priors[scores.indices].astype(np.float64)
            dialled = (scores.data - raised).astype(np.float32)
            scores = csr_array((dialled, scores.indices, scores.indptr), shape=scores.shape)
        return [ListedSource(scores)]

    def contributions(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, SparseParts]:
        """Return nothing: a name is found as a whole."""
        del batch, text, labels
        return {}

    def evidence(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, Evidence]:
        """Return the name of each label that was found in a text."""
        found = self._names.found(batch.texts[text], frozenset(labels))
        return {label: Evidence(name=match) for label, match in found.items()}


def make_names(parts: ModelParts, placement: Placement) -> dict[str, Scorer]:
    """Return the scorer of label names, where a model has what it needs."""
    del placement
    if parts.names is None:
        return {}
    _ = parts.names.matcher  # made at loading, not at the first query
    return {NAMES: NamesScorer(parts.names, parts.catalogue.log_priors)}
