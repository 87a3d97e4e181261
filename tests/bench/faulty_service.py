"""`longtail serve` that does itself harm when its standard input says so; for the soak.

One command a line: `kill` ends the next thread that computes a batch, in the middle of it, by an
error that nothing is meant to catch; `clock SECONDS` moves the wall clock.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import longtail
from longtail.service.engine import worker

_OFFSET_S = 0.0
_REAL_TIME = time.time
_REAL_COMPUTE = worker.compute
_KILLS = threading.Semaphore(0)


def obey() -> None:
    """Do what the standard input says until it ends."""
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "kill":
            _KILLS.release()
        elif command == "clock":
            set_clock(float(argument))


def compute(*batch: Any) -> None:
    """Compute a batch, or end the thread that should.

    Raises:
        SystemExit: The thread is to end.
    """
    if _KILLS.acquire(blocking=False):
        raise SystemExit
    _REAL_COMPUTE(*batch)


def set_clock(offset_s: float) -> None:
    """Let `time.time` tell another time than the system does."""
    global _OFFSET_S  # noqa: PLW0603
    _OFFSET_S = offset_s


def shifted_time() -> float:
    """Return the seconds since the epoch on the clock that jumps."""
    return _REAL_TIME() + _OFFSET_S


if __name__ == "__main__":
    time.time = shifted_time
    worker.compute = compute
    threading.Thread(target=obey, name="faults", daemon=True).start()
    longtail.main()
