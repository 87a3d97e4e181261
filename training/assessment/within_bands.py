"""Rankings of the labels of a frequency band, or of a scheme, among themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float32, Int64
from scipy.sparse import csr_array

from longtail.models.labels.filters import LabelFilter, LabelSet
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import Ranking, nothing
from longtail.training.calibration.scored_pairs import Collector
from longtail.training.evaluation.by_frequency import WITHIN_K


class GroupCollector(Collector):
    """Ranks each group's labels for the documents that carry one.

    Attributes:
        rankings: By group, then by the name of the row; of documents without a label of the group
            empty.
    """

    def __init__(
        self,
        predictor: Predictor,
        rows: Mapping[str, RankingOptions],
        truth: Float32[csr_array, "document label_or_unseen"],
        groups: Mapping[str, Bool[np.ndarray, label_or_unseen]],
    ) -> None:
        """Begin without any document.

        Args:
            predictor: The model.
            rows: What is ranked by, by name.
            truth: The labels of all documents; those that the model lacks after all others.
            groups: Which labels each group has, such as those of a band.
        """
        self._predictor, self._rows, self._truth, self._num_seen = predictor, rows, truth, 0
        ids = np.array([label.id for label in predictor.catalogue], dtype=object)
        self._is_in = {group: is_in.astype(np.float32) for group, is_in in groups.items()}
        known = {group: ids[is_in[: len(ids)]] for group, is_in in groups.items()}
        self._filters = {
            group: LabelFilter(include_set=LabelSet(group, tuple(of_group)))
            for group, of_group in known.items()
            if len(of_group)
        }
        self.rankings: dict[str, dict[str, Ranking]] = {
            group: {name: nothing(truth.shape[0], WITHIN_K) for name in rows} for group in groups
        }

    def _note(self, batch: TextBatch) -> None:
        start, self._num_seen = self._num_seen, self._num_seen + len(batch.texts)
        truth = self._truth[start : self._num_seen]
        for group in self._filters:
            documents = np.flatnonzero(truth @ self._is_in[group])
            if len(documents):
                self._rank(batch.take(documents.tolist()), group, start + documents)

    def _rank(self, batch: TextBatch, group: str, documents: Int64[np.ndarray, document]) -> None:
        k = min(WITHIN_K, len(self._predictor.catalogue))
        for name, options in self._rows.items():
            of_group = replace(options, k=k, label_filter=self._filters[group])
            found = self._predictor.rank(batch, of_group)
            self.rankings[group][name].labels[documents, :k] = found.labels
