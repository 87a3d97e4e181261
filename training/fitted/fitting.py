"""What fits a part of a model on a dev split, and measures it on other documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, runtime_checkable

from jaxtyping import Float32
from scipy.sparse import csr_array

from longtail.models.fitted.part import FittedPart
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.training.calibration.ensemble import Blending
from longtail.training.calibration.scored_pairs import ScoredPairs
from longtail.training.evaluation.tables import Table
from longtail.training.fitted.answered import AnsweredDocuments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Value = TypeVar("Value")


@runtime_checkable
class DevDocuments(Protocol):
    """The documents of a dev split, ranked by a model that is trained to its end.

    Attributes:
        predictor: The model, without probabilities and blends.
        num_training_documents: For the propensities.
        num_looked_for: As of `longtail.training.pipeline.dev_split.finish_on_dev`.
    """

    predictor: Predictor
    num_training_documents: int
    num_looked_for: int | None

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


@dataclass(frozen=True, slots=True)
class MeasuredPart:
    """What a part is worth on measured documents.

    Attributes:
        sentences: For the summary.
        tables: For evaluation.md and the report.
        content: For evaluation.json.
        draw: Makes its picture; None: there is none.
        alternative: What the picture shows, for who can't see it.
    """

    sentences: Sequence[str]
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

    def fit(self, dev: DevDocuments, blending: Blending, default: str) -> Value | None:
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
            value: Of the model.
            scorer: The one that answers.
            documents: What it answers.
            measured_on: Names the documents: fingerprint of the corpus, and the split.
        """
        raise NotImplementedError
