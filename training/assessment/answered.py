"""Collecting what a scorer answers about the documents of a split, beside the truth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.results import UNLIKE_TRAINING, Prediction
from longtail.training.calibration.promises import AnsweredDocuments

NUM_ANSWERED = 64
"""Labels of a document that are looked at, the best ones; others are never accepted."""


class AnswerCollector:
    """Keeps what one scorer answers about batches of documents, in the order of their split."""

    def __init__(
        self,
        predictor: Predictor,
        scorer: str,
        truth: Float32[csr_array, "document label"],
        num_training_documents: int,
    ) -> None:
        """Begin without any.

        Args:
            predictor: The model.
            scorer: One with probabilities.
            truth: The labels of all documents; those that the model lacks after all others.
            num_training_documents: That the model was trained on.
        """
        self._predictor = predictor
        self._k = min(NUM_ANSWERED, len(predictor.catalogue))
        self._options = RankingOptions(k=self._k, scorer=scorer)
        self._truth = truth
        self._num_training_documents = num_training_documents
        self._labels: list[Int64[np.ndarray, "document k"]] = []
        self._probabilities: list[Float64[np.ndarray, "document k"]] = []
        self._is_like: list[bool] = []

    def watch(self, batches: Iterable[TextBatch]) -> Iterator[TextBatch]:
        """Answer the next documents, before whoever asks for them gets them.

        Yields:
            The batches, as they come.
        """
        for batch in batches:
            self._note(self._predictor.predict_batch(batch, self._options))
            yield batch

    @property
    def documents(self) -> AnsweredDocuments:
        """All documents so far; there must be some."""
        counts = self._predictor.catalogue.training_counts
        num_unseen = self._truth.shape[1] - len(counts)
        return AnsweredDocuments(
            np.concatenate(self._labels),
            np.concatenate(self._probabilities),
            np.array(self._is_like),
            self._truth,
            np.pad(counts, (0, num_unseen)),
            self._num_training_documents,
        )

    def _note(self, predictions: Sequence[Prediction]) -> None:
        labels = np.full((len(predictions), self._k), NO_LABEL, dtype=np.int64)
        probabilities = np.zeros(labels.shape)
        for row, prediction in enumerate(predictions):
            found = prediction.labels
            labels[row, : len(found)] = [label.index for label in found]
            probabilities[row, : len(found)] = [label.probability for label in found]
            self._is_like.append(prediction.known_tokens > 0 and not is_unlike(prediction))
        self._labels.append(labels)
        self._probabilities.append(probabilities)


def is_unlike(prediction: Prediction) -> bool:
    """Whether the text is unlike the documents that the model was made for."""
    return any(each.code == UNLIKE_TRAINING for each in prediction.warnings)
