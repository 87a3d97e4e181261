"""`longtail serve` that does itself harm when its standard input says so; for the soak.

One command a line: `kill PREFIX` ends a thread whose name begins so, as an error that nothing
catches would; `clock SECONDS` moves the wall clock by so much.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading
import time

import longtail

_OFFSET_S = 0.0
_REAL_TIME = time.time


def obey() -> None:
    """Do what the standard input says until it ends."""
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "kill":
            kill(argument)
        elif command == "clock":
            set_clock(float(argument))


def kill(prefix: str) -> None:
    """Raise SystemExit in a thread; it ends as soon as it runs Python again."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]
    chosen = random.choice(threads)  # noqa: S311
    ident = ctypes.c_ulong(chosen.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))


def set_clock(offset_s: float) -> None:
    """Let `time.time` tell another time than the system does."""
    global _OFFSET_S  # noqa: PLW0603
    _OFFSET_S = offset_s


def shifted_time() -> float:
    """Return the seconds since the epoch on the clock that jumps."""
    return _REAL_TIME() + _OFFSET_S


if __name__ == "__main__":
    time.time = shifted_time
    threading.Thread(target=obey, name="faults", daemon=True).start()
    longtail.main()
