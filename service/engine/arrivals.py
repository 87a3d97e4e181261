"""How much work comes, and how large batches must be so that it can be borne.

A batch of T tokens takes (T + A) / v seconds: v tokens a second, and A tokens' worth for what a
batch costs beside its tokens. So n workers get through n v T / (T + A) tokens a second, and for
lambda tokens a second T must be at least A u / (1 - u), with u = lambda / (n v).
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
