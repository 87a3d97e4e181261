"""A fitted part in one file: how many words documents have; answers say which texts are longer."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from longtail.models.files.typed_json import json_forms
from longtail.models.fitted.part import Answered, FittedPart
from longtail.models.options import Option
from longtail.models.parts.model_parts import ModelParts
from longtail.models.results import AnswerWarning, Prediction
from longtail.training.calibration.ensemble import Blending
from longtail.training.evaluation.record import Table
from longtail.training.fitted.fitting import (
    AnsweredDocuments,
    MeasuredPart,
    PartFitting,
    RankedDevDocuments,
)
from longtail.training.fitted.registry import register


@dataclass(frozen=True, slots=True)
class UsualLength:
    """Words of the longest document."""

    most: int


LENGTH = Option("length", bool, "Warn of texts that are longer than all documents.")
LONG_TEXT = "long-text"


class UsualLengthPart(FittedPart[UsualLength | None]):
    """Warns of longer texts."""

    name = "usual_length"
    option = LENGTH
    forms = json_forms(UsualLength)
    if_lost = "bundle %s: its usual length is lost"

    def problem(self, value: UsualLength | None, parts: ModelParts) -> str:
        return "" if value is None or value.most > 0 else f"most {value.most}, expected above 0"

    def concluded(
        self, value: UsualLength | None, predictions: list[Prediction], answered: Answered
    ) -> list[Prediction]:
        if value is None or not answered.asked.options.of_part(LENGTH.name):
            return predictions
        warning = AnswerWarning(LONG_TEXT, f"more than {value.most} words", ())
        texts = zip(predictions, answered.asked.batch.texts, strict=True)
        return [
            replace(each, warnings=each.warnings + (warning,) * (len(text.split()) > value.most))
            for each, text in texts
        ]

    def card(self, value: UsualLength | None) -> Iterator[str]:
        if value is not None:
            yield f"It was made for texts of up to {value.most} words."


class UsualLengthFitting(PartFitting[UsualLength | None]):
    """Takes the longest document."""

    part = UsualLengthPart()

    def fit(self, dev: RankedDevDocuments, blending: Blending, default: str) -> UsualLength:
        return UsualLength(max(len(x.split()) for batch in dev.batches() for x in batch.texts))

    def reads_answers(self, value: UsualLength | None, scorer: str) -> bool:
        return value is not None

    def measured(
        self, value: UsualLength | None, scorer: str, documents: AnsweredDocuments, measured_on: str
    ) -> MeasuredPart:
        cells = (["scorer", "documents"], [[scorer, f"{len(documents.labels)}"]])
        return MeasuredPart([Table("Length", "", cells)], {"n": 1})


register(UsualLengthFitting())
