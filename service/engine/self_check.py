"""Whether ordinary requests can be answered: found out by asking for one when others fail.

That a client's request fails says little, because it may fail by what it contains. So it only makes
the service ask itself: a text of its own, for the default scorer of the default version, by the way
of every request: admission, tokeniser thread, compute thread. Only that decides on readiness.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable

from longtail.models.errors import LongtailError, NotReadyError, OverloadedError
from longtail.service.engine.engine import Engine
from longtail.service.errors import DeadlineError

logger = logging.getLogger(__name__)

_NUM_FAILURES = 3
"""Self-checks that fail one after the other before the service is not ready."""
_PAUSE_S = 0.1
"""Pause between these, and between attempts that find the queue full."""
_PAUSE_UNREADY_S = 1.0
"""Pause between self-checks while the service is not ready."""
_REST_S = 1.0
"""Cool-down after a successful self-check; failures in it do not start another."""
_STILL_S = 5.0
"""Time without an answer while work waits after which a look at readiness starts a self-check."""


class SelfCheck:
    """Asks the service for the labels of a text when there is reason to; keeps the result.

    Belongs to one event loop.
    """

    def __init__(
        self, engine: Engine, timeout_s: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin ready, with nothing to check.

        Args:
            engine: Is asked.
            timeout_s: Seconds without any answer, to whomever, after which the service counts as
                hanging.
            clock: In seconds.
        """
        self._engine = engine
        self._timeout_s = timeout_s
        self._clock = clock
        self._problem: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._rests_until = -float("inf")
        self._num_answered = 0
        self._moved_at = clock()

    def check_ready(self) -> None:
        """Do nothing if requests can be answered, as far as is known."""
        self._look_for_standstill()
        problem = self._engine.thread_problem() or self._problem
        if problem is not None:
            raise NotReadyError(problem)

    def note_failure(self) -> None:
        """Start a self-check because a request failed, unless there has just been one."""
        if self._clock() >= self._rests_until:
            self._start()

    def close(self) -> None:
        """Check no more."""
        self._rests_until = float("inf")
        if self._task is not None:
            self._task.cancel()

    def _look_for_standstill(self) -> None:
        """Start a self-check where work waits and nothing has been answered for a while.

        Nobody else would notice a batch whose lines are never answered: they have no time limit.
        """
        now, num_answered = self._clock(), self._engine.num_answered
        if num_answered != self._num_answered or not self._engine.admission.tokens:
            self._num_answered, self._moved_at = num_answered, now
        elif now - self._moved_at > _STILL_S:
            self.note_failure()

    def _start(self) -> None:
        if self._task is None or self._task.done():
            # In a context of its own: it must not give back the place of the request at hand.
            self._task = asyncio.get_running_loop().create_task(
                self._check(), context=contextvars.Context()
            )

    async def _check(self) -> None:
        num_failed = 0
        while (problem := await self._problem_of_one()) is not None:
            num_failed += 1
            if num_failed >= _NUM_FAILURES or isinstance(problem, _StandstillError):
                self._set_problem(str(problem))
            await asyncio.sleep(_PAUSE_S if self._problem is None else _PAUSE_UNREADY_S)
        self._set_problem(None)
        self._rests_until = max(self._rests_until, self._clock() + _REST_S)

    async def _problem_of_one(self) -> Exception | None:
        """Return why one self-check was not answered; None where it was, or need not be."""
        try:
            await self._ask()
        except NotReadyError:  # no model, or stopping: readiness says so anyway
            return None
        except LongtailError as error:
            return error
        except Exception as error:
            if self._problem is None:  # once: it is asked again every second
                logger.exception("a self-check failed with %s", type(error).__name__)
            return LongtailError(
                f"ordinary requests fail with {type(error).__name__}, as a self-check found; its "
                "cause is in the log. The service is ready again when a self-check is answered"
            )
        return None

    async def _ask(self) -> None:
        """Ask until there is an answer or a failure; a busy service, which answers others, is well.

        That does not make it ready again, however: only an answer does.
        """
        num_answered = self._engine.num_answered
        deadline = self._clock() + self._timeout_s
        while True:
            try:
                await self._engine.ask_itself(max(deadline - self._clock(), _PAUSE_S))
            except (OverloadedError, DeadlineError) as error:
                if self._engine.num_answered != num_answered:
                    if self._problem is None:
                        return
                    num_answered = self._engine.num_answered
                    deadline = self._clock() + self._timeout_s
                if self._clock() >= deadline:
                    raise _StandstillError(
                        f"no request was answered within {self._timeout_s:g} s, as a self-check "
                        "found: the compute threads hang or are overloaded. The service is ready "
                        "again when a self-check is answered"
                    ) from error
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    def _set_problem(self, problem: str | None) -> None:
        if problem is not None and self._problem is None:
            logger.error("not ready any more: %s", problem)
        elif problem is None and self._problem is not None:
            logger.warning("ready again: a self-check was answered")
        self._problem = problem


class _StandstillError(LongtailError):
    """Nobody was answered for as long as a request may take."""
