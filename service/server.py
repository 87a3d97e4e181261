"""A server that ends without failing a request, and within a bound.

After SIGTERM it is not ready any more but answers all that still comes, for as long as those who
send requests need to notice; then it takes none, ends those in flight, and stops. A second signal
ends it at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE

from longtail.service.http.connections import protocol_with
from longtail.service.http.deps import Service
from longtail.service.settings import Settings

logger = logging.getLogger(__name__)

_GRACE_S = 5.0
"""Beyond the bounds that were set, before the process is ended from outside its event loop."""
_FORCED_S = 1.0


def serve(app: FastAPI) -> None:
    """Serve an application of `longtail.service.app` until a signal ends it."""
    service: Service = app.state.service
    settings = service.settings
    server = DrainingServer(uvicorn.Config(app, **uvicorn_options(settings)), service)
    status = 0
    try:
        server.run()  # at its end it raises signals again, which process 1 of a container ignores
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    if not server.started:
        sys.exit(status or STARTUP_FAILURE)
    _leave(status)


def uvicorn_options(settings: Settings) -> dict[str, Any]:
    """Return how uvicorn is to serve, as keyword arguments of its `Config`."""
    return {
        "host": settings.host,
        "port": settings.port,
        "http": protocol_with(settings.read_timeout_s, settings.max_connections),
        "ws": "none",
        "proxy_headers": bool(settings.trusted_proxies),
        "forwarded_allow_ips": list(settings.trusted_proxies),
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_keep_alive": settings.keep_alive_s,
        "timeout_graceful_shutdown": settings.shutdown_timeout_s,
    }


class DrainingServer(uvicorn.Server):
    """Waits between the signal to stop and the end of listening."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        *,
        clock: Callable[[], float] = time.monotonic,
        watchdog: Watchdog | None = None,
    ) -> None:
        """Make a server that does not listen yet."""
        super().__init__(config)
        self._service = service
        self._clock = clock
        self._watchdog = watchdog or Watchdog(_end)
        self._stop_at: float | None = None
        self._has_told = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begin to drain; end at once when asked again.

        Called between any two steps of the event loop's thread, so it takes no lock and logs
        nothing.
        """
        self._captured_signals.append(sig)
        if self._stop_at is not None:
            self.should_exit = self.force_exit = True
            self._watchdog.end_within(_FORCED_S, sig)
            return
        delay_s = self._delay_s(sig)
        self._stop_at = self._clock() + delay_s
        self._service.manager.drain()
        timeout_s = self._service.settings.shutdown_timeout_s
        self._watchdog.end_within(delay_s + timeout_s + _GRACE_S, sig)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening and end the requests in flight.

        Changes of versions, which may take minutes, are not waited for. Batches begin no more lines
        at half-time; the other half is for the lines that are in work.
        """
        self._service.redeployer.close()
        half_s = self._service.settings.shutdown_timeout_s / 2
        asyncio.get_running_loop().call_later(half_s, self._service.stopping.set)
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Stop listening once the delay is over."""
        if self._stop_at is not None:
            left = self._stop_at - self._clock()
            if not self._has_told:
                logger.info("stopping: not ready any more, listening for %.1f s", max(left, 0))
                self._has_told = True
            self.should_exit |= left <= 0
        return await super().on_tick(counter)

    def _delay_s(self, sig: int) -> float:
        """Return how long to go on listening: not at all where nobody is sent here.

        By Ctrl-C people stop a service of their own; and before it is ready, nobody is sent to it.
        Windows, which has no SIGTERM, sends SIGBREAK.
        """
        is_used = sig != signal.SIGINT and self._service.manager.served is not None
        return self._service.settings.drain_delay_s if is_used else 0.0


class Watchdog:
    """Ends the process after some time, whatever hangs: threads that compute can't be stopped."""

    def __init__(self, end: Callable[[int], object]) -> None:
        """Begin to watch.

        Args:
            end: Called with the signal when the time is over.
        """
        self._end = end
        # Of all queues the only one that a signal handler may fill.
        self._inbox: queue.SimpleQueue[tuple[float, int]] = queue.SimpleQueue()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def end_within(self, seconds: float, sig: int) -> None:
        """End the process after `seconds`, unless it is to end even before that."""
        self._inbox.put((time.monotonic() + seconds, sig))

    def _watch(self) -> None:
        deadline, sig = self._inbox.get()
        while (left := deadline - time.monotonic()) > 0:
            try:
                earlier, sig = self._inbox.get(timeout=left)
            except queue.Empty:
                break
            deadline = min(deadline, earlier)
        self._end(sig)


def _end(sig: int) -> None:
    logger.error("something did not end in time; ending without it")
    _leave(128 + sig)


def _leave(status: int) -> None:
    """End the process at once: Python's own end aborts a thread that computes or loads a model."""
    logging.shutdown()
    os._exit(status)
