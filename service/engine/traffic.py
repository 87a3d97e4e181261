"""What traffic teaches: how much work comes, how large batches must be, averages with bounds.

A batch of T tokens takes (T + A) / v seconds: v tokens a second, and A tokens' worth for what a
batch costs beside its tokens. So n workers get through n v T / (T + A) tokens a second, and for
lambda tokens a second T must be at least A u / (1 - u), with u = lambda / (n v).

What a service learns from requests decides how it treats the next ones, so no client may teach it
zero, infinity or NaN.
"""

from __future__ import annotations

import math

_MEMORY_S = 2.0
"""After which what has come counts 1/e: long enough for some dozens of requests."""
_SURPLUS = 1.1
"""Of what comes, to be borne: waiting work would never grow less at 1."""


class ArrivalRate:
    """Tokens a second that come, with an exponentially fading memory."""

    def __init__(self) -> None:
        self._rate = 0.0
        self._at = -math.inf

    def add(self, tokens: int, now: float) -> None:
        """Take what has come, and when, in seconds of any clock that only goes forward."""
        self._rate = self.at(now) + tokens / _MEMORY_S
        self._at = max(now, self._at)

    def at(self, now: float) -> float:
        """Return the rate at a time, in tokens a second."""
        return self._rate * math.exp(-max(0.0, now - self._at) / _MEMORY_S)


def least_batch(rate: float, speed: float | None, num_workers: int, batch_cost: float) -> float:
    """Return the tokens that batches must have so that what comes can be borne; they may be inf.

    Args:
        rate: Tokens a second that come.
        speed: Tokens a second of one worker, what a batch costs among them; None: not known yet.
        num_workers: That compute batches at a time.
        batch_cost: What a batch costs beside its tokens, in tokens.
    """
    if speed is None:
        return 0.0
    use = _SURPLUS * rate / (num_workers * speed)
    return batch_cost * use / (1 - use) if use < 1 else math.inf


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
