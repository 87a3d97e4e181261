"""One thread that loads and swaps models: what it is sent in order, and a look around at times."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class LoaderThread:
    """Does tasks one after the other; the only thread that changes what is served."""

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
