"""Thread priorities."""

from __future__ import annotations

import os
import sys
import threading

_NICENESS = 5
"""Enough to go behind requests; a thread that gets no processor at all while it holds Python's
lock would make them wait for it."""


def lower_priority(niceness: int = _NICENESS) -> None:
    """Let the calling thread, and those that it starts, go behind the others of the process."""
    if sys.platform == "linux":  # elsewhere this is a property of the whole process
        thread = threading.get_native_id()
        own = os.getpriority(os.PRIO_PROCESS, os.getpid())  # an operator may have lowered it
        os.setpriority(os.PRIO_PROCESS, thread, min(19, own + niceness))
