"""What is done otherwise on Windows; no other module imports what only one system has.

On Windows a folder can't be synchronised, a file that is open can't be removed or replaced, and
permissions are those of the folder: private files are as private as the folder they are in.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO

REMOVES_OPEN_FILES = sys.platform != "win32"
"""Whether a file that is open, or mapped, can be removed and replaced."""

if sys.platform == "win32":
    import ctypes
    import msvcrt
    import time
    from contextlib import suppress
    from io import TextIOWrapper
    from threading import Lock

    _LOCKED_BYTE = 2**31 - 2  # no one can read a byte that is locked, so it is none of the content
    _PAUSE_S = 0.02
    _MAX_TRIES = 250  # a reader has a small file open for less
    _THIS_PROCESS, _COUNTERS_BYTES = ctypes.c_void_p(-1), 72
    _seeking = Lock()

    def lock(file: IO[str] | IO[bytes], *, waits: bool = True) -> None:
        """Lock a file against other processes until it is closed (see the other system's)."""
        handle = file.fileno()
        position = os.lseek(handle, 0, os.SEEK_CUR)
        os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
        try:
            while True:
                try:
                    return msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
                except PermissionError as error:
                    if not waits:
                        raise BlockingIOError from error
                    time.sleep(_PAUSE_S)
        finally:
            os.lseek(handle, position, os.SEEK_SET)

    def remove_locked(path: Path, file: IO[str] | IO[bytes]) -> None:
        """Remove a file that this process has locked: it is closed first, if nobody took it."""
        file.close()
        with suppress(PermissionError):
            path.unlink(missing_ok=True)

    def move(source: Path, target: Path) -> None:
        """Give a file or folder another name, in place of a file that had it."""
        for _ in range(_MAX_TRIES):
            with suppress(PermissionError):
                source.replace(target)
                return
            time.sleep(_PAUSE_S)
        source.replace(target)

    def sync_file(path: Path) -> None:
        """Make the content of a file durable, unless nobody may write it."""
        with suppress(PermissionError), path.open("rb+") as file:
            os.fsync(file.fileno())

    def sync_folder(folder: Path) -> None:
        """Do nothing: the system writes names down by itself."""

    def read_at(handle: int, buffer: memoryview, position: int) -> int:
        """Read bytes of an open file from a position, and return how many."""
        with _seeking:
            os.lseek(handle, position, os.SEEK_SET)
            content = os.read(handle, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def user_name() -> str:
        """Return the user who runs this process, as the system knows them."""
        return os.getlogin()

    def peak_memory_bytes(*, of_children: bool = False) -> int:
        """Return the largest resident memory of this process so far; 0 of those it started."""
        counters = (ctypes.c_size_t * 9)(_COUNTERS_BYTES)  # their size, the peak, and seven more
        if not of_children:
            ctypes.windll.kernel32.K32GetProcessMemoryInfo(_THIS_PROCESS, counters, _COUNTERS_BYTES)
        return counters[1]

    def prepare_output() -> None:
        """Write UTF-8 into files and pipes, too: the system's own encoding lacks most letters."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(encoding="utf-8")

else:
    import fcntl
    import pwd
    import resource

    def lock(file: IO[str] | IO[bytes], *, waits: bool = True) -> None:
        """Lock a file against other processes until it is closed.

        Args:
            file: Open for writing.
            waits: Whether to wait for a process that has locked it.
        """
        fcntl.flock(file, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove_locked(path: Path, file: IO[str] | IO[bytes]) -> None:  # noqa: ARG001
        """Remove a file that this process has locked, before another one can lock it."""
        path.unlink(missing_ok=True)

    def move(source: Path, target: Path) -> None:
        """Give a file or folder another name, in place of a file that had it."""
        source.replace(target)

    def sync_file(path: Path) -> None:
        """Make the content of a file durable."""
        with path.open("rb") as file:
            os.fsync(file.fileno())

    def sync_folder(folder: Path) -> None:
        """Make the names in a folder durable."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def read_at(handle: int, buffer: memoryview, position: int) -> int:
        """Read bytes of an open file from a position, and return how many."""
        return os.preadv(handle, [buffer], position)

    def user_name() -> str:
        """Return the user who runs this process, as the system knows them: no variable decides."""
        try:
            return pwd.getpwuid(os.getuid()).pw_name
        except KeyError:  # as in a container that runs under any number
            return str(os.getuid())

    def peak_memory_bytes(*, of_children: bool = False) -> int:
        """Return the largest resident memory of this process so far, or of those it started."""
        who = resource.RUSAGE_CHILDREN if of_children else resource.RUSAGE_SELF
        unit = 1 if sys.platform == "darwin" else 2**10  # bytes there, kilobytes elsewhere
        return resource.getrusage(who).ru_maxrss * unit

    def prepare_output() -> None:
        """Do nothing: output is UTF-8."""


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
