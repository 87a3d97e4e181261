"""The one thread of a process that touches FAISS's GPU indexes.

FAISS's GPU classes are not safe for concurrent use, and making one index while another is destroyed
has ended processes (github.com/facebookresearch/faiss, issue 4718). So whichever thread asks, one
makes them, searches them and destroys them, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Thread, current_thread
from traceback import clear_frames
from typing import TypeVar

T = TypeVar("T")


class GpuThread:
    """Does what it is given, in order, until it is stopped."""

    def __init__(self) -> None:
        """Start it."""
        self._works: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._is_ended = False
        # A daemon, so that it keeps no process alive.
        self._thread = Thread(target=self._run, name="gpu_0", daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], T]) -> T:
        """Return what some work returns, or raise what it raises."""
        if current_thread() is self._thread:
            return work()
        future: Future[T] = Future()
        self._works.put(partial(_complete, future, work))
        return future.result()

    def put(self, work: Callable[[], object]) -> None:
        """Have some work done that cannot fail; don't wait. Also for the garbage collector."""
        self._works.put(work)

    def stop(self) -> None:
        """End the thread after what it has been given; nothing may be called from then on."""
        self._works.put(self._end)
        self._thread.join()

    def _end(self) -> None:
        self._is_ended = True

    def _run(self) -> None:
        while not self._is_ended:
            self._do_next()

    def _do_next(self) -> None:
        """Do the next work; a function of its own, so that a waiting thread holds none."""
        self._works.get()()


def _complete(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001  # belongs to who waits for it
        _forget_locals(error)
        future.set_exception(error)


def _forget_locals(error: BaseException | None) -> None:
    """Empty the frames of an error: they hold indexes, which no other thread may destroy."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
