"""A thread for the first work of a model that does not answer yet, with a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Self, TypeVar

from longtail.service.errors import ChangeError

T = TypeVar("T")


class TrialThread:
    """Does what it is given in order, apart from the threads that answer requests.

    Python can't end a thread: work that goes on after the time limit keeps a processor busy at low
    priority until it ends, but no request waits for it, and its model never answers.
    """

    def __init__(self, prepare: Callable[[], object], timeout_s: float) -> None:
        """Start it; the time runs from now on.

        Args:
            prepare: Called first of all on the thread.
            timeout_s: For all that it is given, in seconds.
        """
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._works: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        # A daemon, so that it keeps no process alive.
        Thread(target=_run, args=(prepare, self._works), name="warm-up", daemon=True).start()

    def __call__(self, work: Callable[[], T], /) -> T:
        """Return what some work returns, or raise what it raises.

        Raises:
            ChangeError: The time is over.
            TimeoutError: The work raised it.
        """
        future: Future[T] = Future()
        self._works.put(partial(_complete, future, work))
        try:
            return future.result(max(0.0, self._deadline - time.monotonic()))
        except TimeoutError as error:
            if future.done():
                raise  # of the work itself
            raise ChangeError(
                f"its first predictions took more than {self._timeout_s:g} s; use a smaller model "
                "or more processors"
            ) from error

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the thread end after what it is doing."""
        self._works.put(None)


def _run(prepare: Callable[[], object], works: SimpleQueue[Callable[[], object] | None]) -> None:
    prepare()
    while _do_next(works):
        pass


def _do_next(works: SimpleQueue[Callable[[], object] | None]) -> bool:
    """Do what comes next; return whether there was anything.

    A function of its own, so that the thread holds no model while it waits.
    """
    work = works.get()
    if work is None:
        return False
    work()
    return True


def _complete(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001  # the caller gets it
        future.set_exception(error)
