"""What fits a part of a model on a dev split, and measures it by answers about other documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.fitted.part import FittedPart
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.results import UNLIKE_TRAINING
from longtail.training.calibration.ensemble import Blending
from longtail.training.calibration.scored_pairs import Collector, ScoredPairs
from longtail.training.evaluation.record import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Value = TypeVar("Value")
NUM_ANSWERED = 64
"""Labels of a document that are looked at, the best ones; others are never accepted."""


@runtime_checkable
class RankedDevDocuments(Protocol):
    """The documents of a dev split, ranked by a model that is trained to its end.

    Attributes:
        predictor: The model, without probabilities and blends.
        num_training_documents: For the propensities.
    """

    predictor: Predictor
    num_training_documents: int

    @property
    def truth(self) -> Float32[csr_array, "document label"]:
        """The labels of each document."""
        ...

    def batches(self) -> Sequence[TextBatch]:
        """Return the documents, ready to be ranked."""
        ...

    def scored(self, blending: Blending) -> ScoredPairs:
        """Return pairs of documents and labels with the scores of all scorers and blends."""
        ...


@dataclass(frozen=True)
class AnsweredDocuments:
    """What one scorer answers about documents, and which of it is right.

    Attributes:
        labels: Label indices, best first; -1 behind the last one.
        probabilities: As calibrated; 0 where there is no label.
        is_like: Whether the text is like those of the training, with known words; of others no
            label is accepted.
        truth: The labels of each document; those that the model lacks after all others.
        counts: Training documents of each label.
        num_training_documents: All of them.
    """

    labels: Int64[np.ndarray, "document k"]
    probabilities: Float64[np.ndarray, "document k"]
    is_like: Bool[np.ndarray, document]
    truth: Float32[csr_array, "document label_or_unseen"]
    counts: Int64[np.ndarray, label_or_unseen]
    num_training_documents: int

    @cached_property
    def is_right(self) -> Bool[np.ndarray, "document k"]:
        """Which labels the documents carry."""
        rows = np.arange(len(self.labels))[:, None]
        is_carried = self.truth[rows, self.labels].toarray() > 0
        found: Bool[np.ndarray, "document k"] = is_carried & (self.labels >= 0)
        return found

    @property
    def num_true(self) -> Int64[np.ndarray, document]:
        """Labels that each document carries."""
        found: Int64[np.ndarray, document] = np.diff(self.truth.indptr).astype(np.int64)
        return found

    def num_true_of(self, is_in: Bool[np.ndarray, label_or_unseen]) -> Int64[np.ndarray, document]:
        """Return how many of some labels each document carries."""
        found: Int64[np.ndarray, document] = (self.truth > 0) @ is_in.astype(np.int64)
        return found


class AnswerCollector(Collector):
    """Keeps what one scorer answers about the documents."""

    def __init__(
        self,
        predictor: Predictor,
        scorer: str,
        truth: Float32[csr_array, "document label"],
        num_training_documents: int,
    ) -> None:
        """Start empty.

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

    def _note(self, batch: TextBatch) -> None:
        labels = np.full((len(batch.texts), self._k), NO_LABEL, dtype=np.int64)
        probabilities = np.zeros(labels.shape)
        for row, found in enumerate(self._predictor.predict_batch(batch, self._options)):
            labels[row, : len(found.labels)] = [label.index for label in found.labels]
            probabilities[row, : len(found.labels)] = [label.probability for label in found.labels]
            is_unlike = any(each.code == UNLIKE_TRAINING for each in found.warnings)
            self._is_like.append(found.known_tokens > 0 and not is_unlike)
        self._labels.append(labels)
        self._probabilities.append(probabilities)


@dataclass(frozen=True, slots=True)
class MeasuredPart:
    """What a part is worth on measured documents.

    Attributes:
        tables: For evaluation.md and the report.
        content: For evaluation.json.
        draw: Makes its picture; None: there is none.
        alternative: What the picture shows, for who can't see it.
    """

    tables: Sequence[Table]
    content: object
    draw: Callable[[], Figure] | None = None
    alternative: str = ""


class PartFitting(Generic[Value]):
    """What fits one part, and measures it.

    Attributes:
        part: What is fitted.
        has_picture: Whether it is drawn where it is measured.
    """

    part: FittedPart[Value]
    has_picture: bool = False

    def fit(self, dev: RankedDevDocuments, blending: Blending, default: str) -> Value | None:
        """Return the part; None, or an empty value, where there is none. By default there is none.

        Args:
            dev: The documents.
            blending: Calibrations and blends, which were fitted on them before.
            default: The scorer of queries that name none.
        """
        del dev, blending, default
        return None

    def reads_answers(self, value: Value, scorer: str) -> bool:
        """Whether the part is measured by what a scorer answers; by default it is not measured."""
        del value, scorer
        return False

    def measured(
        self, value: Value, scorer: str, documents: AnsweredDocuments, measured_on: str
    ) -> MeasuredPart:
        """Return what the part is worth on documents.

        Args:
            value: The model's value.
            scorer: The one that answers.
            documents: What it answers.
            measured_on: Names the documents: fingerprint of the corpus, and the split.
        """
        raise NotImplementedError
