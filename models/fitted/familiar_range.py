"""Which texts are unlike the documents of a corpus, and how far probabilities hold for short ones.

Probabilities are fitted on documents of the corpus and hold for such texts alone. So a text is
compared with documents that the model was not trained on: how many of its words the model knows,
which share of them it doesn't know, and how similar the nearest training document is, where that is
looked for. A bound is an order statistic: of n held-out documents and a new one of the same kind,
each is equally likely to have the smallest value, the second smallest, and so on, so that the new
one is below the k-th smallest of the n with a probability of at most k / (n + 1).

In a text of a few words each word weighs more than in any document, so that the same score says
something else. `ShortTexts` bends the log-odds of such texts by a line whose two numbers depend on
the words that the model knows; documents, and the order of a text's labels, stay as they are.
`longtail.training.fitted.familiar_range` fits both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np
from pydantic import ConfigDict, Field

from longtail.models.bundle.manifest import Calibration
from longtail.models.files.typed_json import json_forms
from longtail.models.fitted.part import Answered, Asked, FittedPart
from longtail.models.results import (
    FEW_KNOWN_WORDS,
    UNLIKE_TRAINING,
    AnswerWarning,
    Familiarity,
    Prediction,
)

FALSE_ALARMS = 0.01
"""Most of the documents of the corpus's kind that are warned of, as a share."""
LEAST_DOCUMENTS = 100
"""Held-out documents without which there are no bounds: too many documents would be outside."""
_Count = Annotated[int, Field(ge=0)]
_Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_MOST = 100.0
"""Nats: no shift is larger, and no factor."""


@dataclass(frozen=True, slots=True)
class ShortTexts:
    """The log-odds a(m) + b(m) g of texts with m known words, where a document's are g.

    a and b are piecewise linear in ln(m) between the knots, and constant below the first one; from
    the last one on nothing changes.

    Attributes:
        known_words: m at each knot, rising, at least 1 each.
        shifts: a at each knot, in nats; 0 at the last.
        factors: b at each knot, above 0, so that labels keep their order; 1 at the last.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    known_words: tuple[int, ...]
    shifts: tuple[float, ...]
    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse knots that don't rise, and numbers that would change the order or documents."""
        knots, numbers = self.known_words, (*self.shifts, *self.factors)
        is_rising = list(knots) == sorted({*knots}) and min(knots, default=0) >= 1
        are_as_many = len(knots) == len(self.shifts) == len(self.factors)
        are_bounded = all(abs(x) <= _MOST for x in numbers) and all(x > 0 for x in self.factors)
        if not (is_rising and are_as_many and are_bounded):
            raise ValueError(
                f"{self}: expected rising knots, and as many shifts and factors above 0"
            )
        if (self.shifts[-1], self.factors[-1]) != (0.0, 1.0):
            raise ValueError(f"{self}: expected shift 0 and factor 1 at the last knot")

    def of_text(self, calibration: Calibration, known_words: int) -> Calibration | None:
        """Return the calibration of a text by its known words; None: that of documents."""
        if known_words >= self.known_words[-1]:
            return None
        return _of_text(self, calibration, max(1, known_words))


@lru_cache(maxsize=4096)
def _of_text(short: ShortTexts, calibration: Calibration, known_words: int) -> Calibration:
    """Return the calibration of texts with few known words, at least 1."""
    place, knots = np.log(known_words), np.log(short.known_words)
    shift = float(np.interp(place, knots, short.shifts))
    factor = float(np.interp(place, knots, short.factors))
    return replace(
        calibration,
        slopes=tuple(factor * slope for slope in calibration.slopes),
        intercept=shift + factor * calibration.intercept,
    )


@dataclass(frozen=True, slots=True)
class FamiliarRange:
    """The bounds of texts that are like the held-out documents.

    Attributes:
        num_documents: The held-out documents.
        false_alarms: Expected share of similar documents outside the bounds, at most:
            `FALSE_ALARMS`, or more where a bound is the least or largest value that there is.
        least_known_words: Words of the vocabulary in a text.
        most_known_words: The same.
        most_unknown_share: Share of its words outside the vocabulary.
        least_similarity: Cosine of the nearest training document; None where none are remembered.
        short_texts: By scorer, how its log-odds change in shorter texts; empty: they don't.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    num_documents: _Count
    false_alarms: _Share
    least_known_words: _Count
    most_known_words: _Count
    most_unknown_share: _Share
    least_similarity: _Share | None
    short_texts: Mapping[str, ShortTexts] = field(default_factory=dict)

    @classmethod
    def of_documents(cls, documents: Sequence[Familiarity]) -> FamiliarRange | None:
        """Return the bounds of documents that the model was not trained on; None: too few."""
        num = len(documents)
        if num < LEAST_DOCUMENTS:
            return None
        known = sorted(each.known_words for each in documents)
        unknown = sorted(map(_unknown_share, documents))
        similar = sorted(
            each.nearest_similarity for each in documents if each.nearest_similarity is not None
        )
        num_bounds = 4 if similar else 3
        rank = max(1, math.floor(FALSE_ALARMS * (num + 1) / num_bounds))  # k
        return cls(
            num_documents=num,
            false_alarms=num_bounds * rank / (num + 1),
            least_known_words=known[rank - 1],
            most_known_words=known[-rank],
            most_unknown_share=unknown[-rank],
            least_similarity=similar[rank - 1] if similar else None,
        )

    def warnings_about(self, text: Familiarity) -> tuple[AnswerWarning, ...]:
        """Return the warning about a text that is outside the bounds; none about others."""
        reasons = []
        known, share, nearest = text.known_words, _unknown_share(text), text.nearest_similarity
        if not self.least_known_words <= known <= self.most_known_words:
            reasons.append(
                f"it has {known} known words (documents: {self.least_known_words} to "
                f"{self.most_known_words})"
            )
        if share > self.most_unknown_share:
            reasons.append(
                f"{share:.0%} of its words are unknown (documents: at most "
                f"{self.most_unknown_share:.0%})"
            )
        if (
            nearest is not None
            and self.least_similarity is not None
            and nearest < self.least_similarity
        ):
            reasons.append(
                f"the similarity of the nearest training document is {nearest:.2f} (documents: at "
                f"least {self.least_similarity:.2f})"
            )
        return _warning("; ".join(reasons)) if reasons else ()


def _few_known(answer: Prediction) -> tuple[AnswerWarning, ...]:
    """Return the warning of a model without bounds, where less than half of the words are known.

    A word of the text may be known as one of a name, or to an encoder, alone.
    """
    text = answer.familiarity
    assert text is not None
    if _unknown_share(text) <= 0.5 or 2 * answer.known_tokens >= answer.num_text_tokens:
        return ()
    known = f"{text.known_words} of its {text.num_words} words are known"
    return _warning(known, FEW_KNOWN_WORDS)


def _warning(reason: str, code: str = UNLIKE_TRAINING) -> tuple[AnswerWarning, ...]:
    detail = (
        f"the text is unlike the documents that the model was made for: {reason}; "
        "its probabilities may be far off: let a person check the labels"
    )
    return (AnswerWarning(code, detail, ()),)


def _unknown_share(text: Familiarity) -> float:
    return 1 - text.known_words / text.num_words if text.num_words else 1.0


class FamiliarRangePart(FittedPart[FamiliarRange | None]):
    """Warns of texts that are unlike documents, and gives short ones their own probabilities."""

    name = "familiar"
    forms = json_forms(FamiliarRange)

    def prepared(self, value: FamiliarRange | None, asked: Asked) -> Asked:
        """Return the query with the calibrations of texts that are shorter than documents."""
        short = None if value is None else value.short_texts.get(asked.scorer)
        if short is None or asked.calibration is None or not asked.batch.texts:
            return asked
        known_words = asked.batch.word_counts[:, 1].tolist()
        own = [short.of_text(asked.calibration, known) for known in known_words]
        return replace(asked, of_texts=own)

    def concluded(
        self, value: FamiliarRange | None, predictions: list[Prediction], answered: Answered
    ) -> list[Prediction]:
        """Return the predictions with a warning about each text that is unlike documents.

        A model with too few held-out documents for bounds warns of texts of which it knows less
        than half of the words.
        """
        del answered
        warned = []
        for each in predictions:
            assert each.familiarity is not None  # every text is compared
            unlike = _few_known(each) if value is None else value.warnings_about(each.familiarity)
            warned.append(replace(each, warnings=unlike + each.warnings) if unlike else each)
        return warned


FAMILIAR_RANGE = FamiliarRangePart()
