"""An event loop for callers that have none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from threading import Lock, Thread
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """An event loop on a thread, for callers that have none, or one that is not ours."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="longtail-client", daemon=True)
        self._lock = Lock()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of some work on the loop, which the first work starts.

        Raises:
            RuntimeError: The loop is closed.
        """
        with self._lock:
            if self._loop.is_closed():
                work.close()
                raise RuntimeError("the client is closed; make another one")
            if not self._thread.is_alive():
                self._thread.start()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # where the caller was interrupted

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End the loop after some last work; do nothing where it has ended."""
        if self._loop.is_closed():
            return
        self.run(last())
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
