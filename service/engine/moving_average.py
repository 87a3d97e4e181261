"""A moving average of what traffic shows, which no traffic can drive out of its bounds.

What a service learns from requests decides how it treats the next ones, so a single client must not
be able to teach it zero, infinity or NaN.
"""

from __future__ import annotations

import math


class MovingAverage:
    """An exponentially decaying average whose value is always a number within two bounds.

    A sample outside the bounds counts as the bound that it exceeds, so that one sample moves the
    value by a limited amount. A sample that is not finite is a failed measurement and is ignored.
    """

    def __init__(
        self, *, decay: float, lower: float, upper: float, initial: float | None = None
    ) -> None:
        """Start without samples.

        Args:
            decay: Share of the old value that a new sample leaves, from 0 to 1.
            lower: Smallest value; greater than 0.
            upper: Largest value; finite.
            initial: Value before the first sample, which is then averaged with it; None: there is
                no value, and the first sample becomes the value.
        """
        assert 0 <= decay < 1 and 0 < lower <= upper < math.inf
        self._decay = decay
        self._lower = lower
        self._upper = upper
        self.value = None if initial is None else self._clipped(initial)
        """The average; None before the first sample where no initial value was given."""

    def add(self, sample: float) -> None:
        """Take one more sample; one that is not finite is ignored."""
        if not math.isfinite(sample):
            return
        new = self._clipped(sample)
        if self.value is not None:
            new = self._decay * self.value + (1 - self._decay) * new
        self.value = self._clipped(new)  # once more, because sums are rounded

    def _clipped(self, value: float) -> float:
        return min(max(value, self._lower), self._upper)
