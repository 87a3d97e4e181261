"""Changes of versions: their reports, their retries, and the one thread that makes them."""

from __future__ import annotations

import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, ParamSpec, TypeVar

from longtail.models.bundle.registry import CURRENT
from longtail.service.process.compute_threads import collect_cycles
from longtail.service.settings import Settings, SwapMode
from longtail.service.versions.serving import Canary, ServedModel, Serving

State = Literal["loaded", "loading", "draining", "failed", "not-loaded"]
_MAX_SKIPS = 64
_COLLECT_INTERVAL_S = 1.0
_LAST_LOAD_S = 120.0
"""How long a process that ends waits for a load: Python's own end aborts threads that compute."""


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

    @classmethod
    def of(cls, settings: Settings) -> Policy:
        """Return what the settings say."""
        number = settings.canary_version
        return cls(
            versions=settings.versions,
            swap_mode=settings.swap_mode,
            drain_timeout_s=settings.shutdown_timeout_s,
            canary=None if number is None else Canary(number, settings.canary_share),
            watch_interval_s=settings.watch_interval_s,
        )


@dataclass(frozen=True, slots=True)
class Change:
    """The outcome of a command: the versions served now, and how long it took."""

    serving: Serving
    seconds: float


class DrainingModel:
    """A model that is served no more; this holds no reference to it."""

    def __init__(self, model: ServedModel) -> None:
        self.version = model.version
        self._digest = model.digest
        self._rest = model.example, model.languages
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


logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class LoaderThread:
    """Runs tasks one after the other, in the only thread that changes the served versions."""

    def __init__(self, look: Callable[[], object], interval_s: float) -> None:
        """Make the thread, which begins with `start`.

        Args:
            look: Called whenever the interval has passed.
            interval_s: In seconds; 0: never.
        """
        self._look = look
        self._interval_s = interval_s
        # Of all queues the only one that may be filled while an object is being freed.
        self._inbox: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._waiting: list[Future[object]] = []
        self._lock = threading.Lock()
        self._is_stopped = False
        # A daemon: a load that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="loader", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()
        # Before the functions of `atexit`, among which PyTorch's take down what a load uses.
        threading._register_atexit(_let_end, weakref.ref(self))  # type: ignore[attr-defined]

    def submit(self, task: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return the future of a task; it is cancelled where the thread stops before its end."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_stopped:
                future.cancel()
            else:
                self._inbox.put(partial(_settle, future, partial(task, *args, **kwargs)))
                self._waiting.append(future)  # type: ignore[arg-type]  # only to be cancelled
        return future

    def put(self, task: Callable[[], object]) -> None:
        """Do a task that nobody waits for and that does not raise; may be called anywhere."""
        self._inbox.put(task)

    def stop(self) -> None:
        """Begin no further task; one that has begun ends in the background, and nobody waits."""
        with self._lock:
            self._is_stopped = True
            for future in self._waiting:
                future.cancel()
            self._waiting.clear()
        self._inbox.put(None)

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread, at most so long."""
        self._thread.join(seconds)

    @property
    def is_stopped(self) -> bool:
        """Whether the thread is to end."""
        return self._is_stopped

    def _work(self) -> None:
        due = time.monotonic() + self._interval_s
        while not self._is_stopped:
            left = max(due - time.monotonic(), 0) if self._interval_s else None
            try:
                task = self._inbox.get(timeout=left)
            except queue.Empty:
                task = self._look
                due = time.monotonic() + self._interval_s
            if task is not None:
                _guard(task)
            del task  # it may hold a model
            with self._lock:
                self._waiting = [future for future in self._waiting if not future.done()]


def _let_end(loader: weakref.ref[LoaderThread]) -> None:
    if (thread := loader()) is not None:
        thread.stop()
        thread.join(_LAST_LOAD_S)


def _guard(task: Callable[[], object]) -> None:
    try:
        task()
    except Exception:  # a bug: tasks keep their errors to themselves, and looks have none
        logger.exception("the loader thread goes on after an unexpected error")


def _settle(future: Future[T], task: Callable[[], T]) -> None:
    """Do a task unless it is cancelled; its future never runs, so that a stop can cancel it."""
    if future.cancelled():
        return
    with suppress(InvalidStateError):  # cancelled meanwhile
        try:
            result = task()
        except BaseException as error:  # noqa: BLE001  # it is the caller's
            future.set_exception(error)
        else:
            future.set_result(result)
