"""What fits a scorer that needs no encoder: the one interface between a run and such a scorer.

To add one, write a `Fitting` in a file and register it
(`longtail.training.pipeline.fittings.register`), beside the `ScorerKind` that serves what it fits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float32
from pydantic import BaseModel
from scipy.sparse import csr_array

from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.scorers.sparse import SparseModel


@dataclass(frozen=True, slots=True)
class DevDocuments:
    """Documents that settings are chosen on.

    Attributes:
        features: Tf-idf of each.
        truth: Ones where a document carries a label.
    """

    features: Float32[csr_array, "document feature"]
    truth: Float32[csr_array, "document label"]


@dataclass(frozen=True, slots=True)
class FittedOn:
    """What a scorer is fitted on.

    Attributes:
        texts: Gives the texts of the training documents.
        ids: Gives their ids.
        features: Their tf-idf.
        truth: Ones where a document carries a label.
        catalogue: The labels.
        sparse: The sparse model, fitted on the same documents.
        dev: Gives the dev split; None where there is none, or where nothing is to be chosen.
        seed: Seed of all that is random.
        models: Those of scorers that were fitted before this one, by name.
    """

    texts: Callable[[], Iterable[str]]
    ids: Callable[[], Sequence[str]]
    features: Float32[csr_array, "document feature"]
    truth: Float32[csr_array, "document label"]
    catalogue: LabelCatalogue
    sparse: SparseModel
    dev: Callable[[], DevDocuments | None]
    seed: int
    models: Mapping[str, Any] = field(default_factory=dict)


class Fitting(ABC):
    """Fits the model of a scorer (see `longtail.models.kinds.scorer.ScorerKind`).

    Attributes:
        name: The scorer's name.
        settings: What is configured of it, under `scorer_settings` and its name; None: nothing.
    """

    name: str
    settings: type[BaseModel] | None = None

    @abstractmethod
    def fit(self, on: FittedOn, settings: Any, before: Any) -> Any:
        """Return the model, or None where the documents teach nothing: then `before` stays.

        Args:
            on: The documents.
            settings: An instance of `settings`.
            before: The model that was fitted on a part of the documents, with what was chosen for
                it, over the same labels; None: none was.
        """
