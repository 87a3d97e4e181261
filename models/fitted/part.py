"""What a model holds besides its scorers: parts that a dev split or a command fits.

To add one, write a `FittedPart` in one file, and beside it the
`longtail.training.fitted.fitting.PartFitting` that fits and measures it; register the latter
(`longtail.training.fitted.registry.register`), or a part that a command fits alone
(`longtail.models.fitted.registry.register`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64, Int64

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import Calibration, Manifest
from longtail.models.options import Option, RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.consistency import reading
from longtail.models.parts.model_parts import ModelParts
from longtail.models.results import Prediction

Value = TypeVar("Value")


@runtime_checkable
class HasFitted(Protocol):
    """A model with fitted parts, by their names."""

    @property
    def fitted(self) -> Mapping[str, Any]:
        """Values by the name of the part."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of some texts, before their labels are ranked.

    Attributes:
        batch: The texts.
        options: What is asked of each.
        scorer: The one that ranks.
        calibration: What makes log-odds of its scores; None: nothing does.
        of_texts: Calibration of each text; None: `calibration` for all.
        depth: Labels of each text that are ranked; at least `options.k`.
        training_counts: Training documents of each label of the model.
    """

    batch: TextBatch
    options: RankingOptions
    scorer: str
    calibration: Calibration | None
    of_texts: Sequence[Calibration | None]
    depth: int
    training_counts: Int64[np.ndarray, label]


@dataclass(frozen=True, slots=True)
class Answered:
    """The ranked labels of some texts, before predictions are made of them.

    Attributes:
        asked: The query.
        labels: Rows in the catalogue, the best first; `NO_LABEL` behind the last one. Those of them
            that pass the threshold are answered, at most k.
        log_odds: The order of the labels; None where no scorer gives log-odds.
        probabilities: As calibrated; None where there are none. They need not fall.
        least: By text, the least probability of a label that is answered; None: any.
        accepted: Which of the labels go through without a person; None where nobody asked.
    """

    asked: Asked
    labels: Int64[np.ndarray, "text depth"]
    log_odds: Float64[np.ndarray, "text depth"] | None
    probabilities: Float64[np.ndarray, "text depth"] | None
    least: Sequence[float | None]
    accepted: Bool[np.ndarray, "text depth"] | None


class FittedPart(Generic[Value]):
    """One part: its file in a bundle, how it is checked, and what answers and cards say of it.

    Attributes:
        name: Its key in `ModelParts.fitted`; its file is NAME.json.
        forms: What writes its values as JSON, and what reads them (see `json_forms`).
        lacking: The value where a model does not have the part.
        option: What it adds to the options of requests: without a value of it, a query has nothing
            to do with the part. None: the part sees every query.
        remedy: What to do where a query has the option and the model lacks the part.
        if_lost: The warning where a new version of other labels or scores can't keep the part;
            empty: every version keeps it.
    """

    name: str
    forms: tuple[Callable[[Any], str], Callable[[str | bytes], Any]]
    lacking: Any = None
    option: Option | None = None
    remedy: str = "train the model again, or leave the option out"
    if_lost: str = ""

    @property
    def file(self) -> str:
        """Name of its file in a bundle."""
        return f"{self.name}.json"

    def of(self, model: HasFitted) -> Value:
        """Return the value that a model has; `lacking` where it has none."""
        value: Value = model.fitted.get(self.name, self.lacking)
        return value

    def added_to(self, parts: ModelParts, value: Value) -> ModelParts:
        """Return a model with this value."""
        return replace(parts, fitted={**parts.fitted, self.name: value})

    def to_json(self, value: Value) -> str:
        """Return the text of its file."""
        return self.forms[0](value)

    def from_json(self, text: str, num_labels: int) -> Value:
        """Read the result of `to_json`."""
        del num_labels
        value: Value = self.forms[1](text)
        return value

    def read(self, bundle: Bundle) -> Value:
        """Return the value of a bundle; `lacking` where it has no such file."""
        value: Value = self.lacking
        if self.file in bundle.manifest.files:
            with reading(bundle, self.file):
                value = self.from_json(bundle.text(self.file), bundle.manifest.label_count)
        return value

    def problem(self, value: Value, parts: ModelParts) -> str:
        """Return how a value contradicts the other parts of its model; empty where it does not."""
        del value, parts
        return ""

    def prepared(self, value: Value, asked: Asked) -> Asked:
        """Return what the part makes of a query before labels are ranked; by default the same."""
        del value
        return asked

    def annotated(self, value: Value, answered: Answered) -> Answered:
        """Return ranked labels with what the part says of them; by default the same."""
        del value
        return answered

    def concluded(
        self, value: Value, predictions: list[Prediction], answered: Answered
    ) -> list[Prediction]:
        """Return finished predictions with what the part says of each; by default the same."""
        del value, answered
        return predictions

    def listed(self, manifest: Manifest | None, model: HasFitted | None) -> Mapping[str, Any]:
        """Return what a list of versions says of the part, by field; by default nothing.

        Args:
            manifest: The version's manifest; None: it can't be read.
            model: The version's; None: it is not loaded.
        """
        del manifest, model
        return {}

    def card(self, value: Value) -> Iterator[str]:
        """Yield what a model card says of a value, in sentences; by default nothing."""
        del value
        yield from ()
