"""Memory: how much a process may still take, giving free memory back, and the garbage collector."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUPS = (
    # Of version 2: limit, use, statistics, and where the latter have the cache that can go at once.
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat",
     "total_inactive_file"),
)  # fmt: skip


def available_bytes(cgroup: Path = Path("/sys/fs/cgroup"), meminfo: Path = _MEMINFO) -> int | None:
    """Return the bytes that can be taken before somebody is killed; None where nobody says.

    The smaller of what the machine has and of what the container is allowed.

    Args:
        cgroup: Where the limits of the container stand.
        meminfo: Where the memory of the machine stands.
    """
    found = [_of_machine(meminfo), *(_of_container(cgroup, *names) for names in _CGROUPS)]
    return min((number for number in found if number is not None), default=None)


def available_gpu_bytes(device: str | None = None) -> int | None:
    """Return the free bytes of the GPU that models compute on; None where they compute on none.

    Args:
        device: "cpu" or "cuda"; None: a GPU if there is one.
    """
    if device == "cpu":
        return None
    from longtail.models.ranking.device_rows import free_gpu_bytes

    return free_gpu_bytes()


def return_free_memory() -> None:
    """Let the C library return memory that was freed to the system, where it is glibc."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _of_machine(meminfo: Path) -> int | None:
    kibibytes = _field(meminfo, "MemAvailable:")
    return None if kibibytes is None else kibibytes * 1024


def _of_container(cgroup: Path, limit: str, use: str, stat: str, cache: str) -> int | None:
    try:
        most, used = (int((cgroup / name).read_text()) for name in (limit, use))
    except (OSError, ValueError):  # there is none, or its limit is "max"
        return None
    return most - used + (_field(cgroup / stat, cache) or 0)


def _field(path: Path, name: str) -> int | None:
    """Return the number behind a name in a file of names and numbers."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), None)


_YOUNG_COLLECTIONS = 200
"""Collections of younger objects for one of all; Python does a full one after every tenth. Under
ten times the load that can be borne, it is one in some fifty seconds."""


def collect_rarely() -> None:
    """Make full runs of the cyclic garbage collector rare: each stops all threads for 0.4 s."""
    youngest, young, _ = gc.get_threshold()
    gc.set_threshold(youngest, young, _YOUNG_COLLECTIONS)


def collect_cycles() -> None:
    """Free all reference cycles now, and leave what remains out of later collections."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
