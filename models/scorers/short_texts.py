"""How far the probabilities of a scorer hold for texts that are shorter than documents.

Calibrations are fitted on whole documents. In a text of a few words each word weighs more than in
any document, so that the same score says something else. `ShortTexts` bends the log-odds of such
texts by a line whose two numbers depend on the words that the model knows; documents, and the order
of a text's labels, stay as they are. `longtail.training.calibration.short_texts` fits it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from pydantic import ConfigDict

from longtail.models.bundle.manifest import Calibration

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
        """Refuse knots that don't rise, and numbers that would change the order or documents.

        Raises:
            ValueError: There are some.
        """
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
        """Return the calibration of a text with so many known words; None: that of documents."""
        if known_words >= self.known_words[-1]:
            return None
        place, knots = np.log(max(1, known_words)), np.log(self.known_words)
        shift = float(np.interp(place, knots, self.shifts))
        factor = float(np.interp(place, knots, self.factors))
        return replace(
            calibration,
            slopes=tuple(factor * slope for slope in calibration.slopes),
            intercept=shift + factor * calibration.intercept,
        )
