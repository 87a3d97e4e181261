"""What is asked of a change of versions, what it reports, and how failures are retried."""

from __future__ import annotations

import queue
import time
import weakref
from dataclasses import dataclass
from typing import Literal

from longtail.models.bundle.registry import CURRENT
from longtail.service.process.memory import collect_cycles
from longtail.service.versions.serving import Canary, ServedModel, Serving

SwapMode = Literal["availability-preserving", "resource-preserving"]
State = Literal["loaded", "loading", "draining", "failed", "not-loaded"]
_MAX_SKIPS = 64
_COLLECT_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How versions are chosen and replaced; see `longtail.service.settings.Settings`.

    Attributes:
        versions: What to load at the start; the first is the default.
        swap_mode: Whether a new version is loaded before or after the old one is freed.
        drain_timeout_s: How long requests may hold an old model whose memory the new one needs.
        canary: Who gets a share of the traffic from the start.
        watch_interval_s: How often to look whether `current` has moved; 0: never.
    """

    versions: tuple[int | str, ...] = (CURRENT,)
    swap_mode: SwapMode = "availability-preserving"
    drain_timeout_s: float = 30.0
    canary: Canary | None = None
    watch_interval_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a command: what is served now, and how long it took."""

    serving: Serving
    seconds: float


class DrainingModel:
    """A model that is served no more; this holds no reference to it."""

    def __init__(self, model: ServedModel) -> None:
        self.version = model.version
        self._digest = model.digest
        self._rest = model.thresholds, model.example, model.languages
        self._predictor = weakref.ref(model.predictor)
        self._freed: queue.SimpleQueue[None] = queue.SimpleQueue()
        weakref.finalize(model.predictor, self._freed.put, None).atexit = False

    def model(self) -> ServedModel | None:
        """Return the model if it is still there."""
        predictor = self._predictor()
        if predictor is None:
            return None
        return ServedModel(self.version, self._digest, predictor, *self._rest)

    def wait(self, deadline: float) -> bool:
        """Return whether the model is gone by a point of `time.monotonic`."""
        while self._predictor() is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            try:
                self._freed.get(timeout=min(left, _COLLECT_INTERVAL_S))
            except queue.Empty:
                collect_cycles()  # a failed request may have left a cycle that holds it
        return True


class ExponentialBackoff:
    """Exponential back-off: skips 0, 1, 3, 7, ... polls before what failed is tried again."""

    def __init__(self) -> None:
        self._target: object = self  # equal to nothing else
        self._num_failures = 0
        self._left = 0

    def is_over(self, target: object) -> bool:
        """Return whether it is time to try; a call that returns False counts as a skipped poll."""
        if target != self._target or self._left == 0:
            return True
        self._left -= 1
        return False

    def note_failure(self, target: object) -> None:
        """Skip more polls than last time, if it is the same target as then."""
        self._num_failures = self._num_failures + 1 if target == self._target else 1
        self._target = target
        self._left = min(2 ** (self._num_failures - 1), _MAX_SKIPS) - 1

    def note_success(self) -> None:
        """Forget what failed."""
        self._target, self._num_failures, self._left = self, 0, 0
