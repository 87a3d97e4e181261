"""Rankings of the labels of one frequency band among themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.labels.filters import LabelFilter, LabelSet
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import Ranking, nothing
from longtail.training.calibration.scored_pairs import Collector
from longtail.training.evaluation.by_frequency import FREQUENCY_BINS, WITHIN_K, label_subsets


class BandCollector(Collector):
    """Ranks each band's labels for the documents that carry one.

    Attributes:
        rankings: By band, then by the name of the row; of documents without a label of the band
            empty.
    """

    def __init__(
        self,
        predictor: Predictor,
        rows: Mapping[str, RankingOptions],
        truth: Float32[csr_array, "document label_or_unseen"],
    ) -> None:
        """Begin without any document.

        Args:
            predictor: The model.
            rows: What is ranked by, by name.
            truth: The labels of all documents; those that the model lacks after all others.
        """
        self._predictor, self._rows, self._truth, self._num_seen = predictor, rows, truth, 0
        ids = np.array([label.id for label in predictor.catalogue], dtype=object)
        counts = np.pad(predictor.catalogue.training_counts, (0, truth.shape[1] - len(ids)))
        self._is_in = {
            band: is_in.astype(np.float32)
            for band, is_in in label_subsets(counts).items()
            if band in FREQUENCY_BINS
        }
        known = {band: ids[is_in[: len(ids)] > 0] for band, is_in in self._is_in.items()}
        self._filters = {
            band: LabelFilter(include_set=LabelSet(band, tuple(of_band)))
            for band, of_band in known.items()
            if len(of_band)
        }
        self.rankings: dict[str, dict[str, Ranking]] = {
            band: {name: nothing(truth.shape[0], WITHIN_K) for name in rows} for band in self._is_in
        }

    def _note(self, batch: TextBatch) -> None:
        start, self._num_seen = self._num_seen, self._num_seen + len(batch.texts)
        truth = self._truth[start : self._num_seen]
        for band in self._filters:
            documents = np.flatnonzero(truth @ self._is_in[band])
            if len(documents):
                self._rank(batch.take(documents.tolist()), band, start + documents)

    def _rank(self, batch: TextBatch, band: str, documents: Int64[np.ndarray, document]) -> None:
        k = min(WITHIN_K, len(self._predictor.catalogue))
        for name, options in self._rows.items():
            of_band = replace(options, k=k, label_filter=self._filters[band])
            found = self._predictor.rank(batch, of_band)
            self.rankings[band][name].labels[documents, :k] = found.labels
