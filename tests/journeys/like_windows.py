# ruff: noqa: C901, F401, I001, PLR0915, PTH112, PTH115, PTH119, PTH208, T201
"""Runs `longtail` as on Windows, as far as Python can pretend it: `python like_windows.py train`.


- The modules `fcntl`, `pwd`, `resource` and `uvloop` can't be imported, and `os` lacks what Windows
  lacks; `msvcrt` and the call for memory are there, over Linux' own.
- A folder can't be opened, and nothing is synchronised through a descriptor that can't write.
- A file that is open or mapped can't be removed or replaced; a rename replaces nothing.
- Text files end lines with CRLF, and are read and written as Windows-1252, unless told otherwise.
- Names must be ones that Windows allows, and there are no symbolic links.
"""

import ctypes
import errno
import fcntl as real_fcntl
import io
import os
import pathlib
import re
import resource as real_resource
import sys
import types
from collections.abc import Iterator

# What imports the hidden modules for itself, or asks which system this is, does so first.
import asyncio
import getpass
import multiprocessing.popen_spawn_posix
import shutil
import subprocess
import tarfile
import tempfile

import fastapi
import joblib
import numpy
import sklearn.feature_extraction.text
import typer.core
import uvicorn.main

HIDDEN = ("fcntl", "pwd", "grp", "resource", "termios", "uvloop")
LACKING = ("preadv", "pread", "pwritev", "pwrite", "getuid", "geteuid", "getgid", "getegid",
           "chown", "fchmod", "fchown", "mkfifo", "fork", "statvfs", "getpgid", "nice")  # fmt: skip
FORBIDDEN = re.compile(r'[<>:"|?*\x00-\x1f]|[ .]$')
calls: set[str] = set()


def pretend() -> None:
    """Make this process like one on Windows; its own modules are not imported yet."""
    assert not any(name.split(".")[0] == "longtail" for name in sys.modules)
    for name in HIDDEN:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in LACKING:
        delattr(os, name)
    os.getlogin = lambda: "a user of Windows"
    ctypes.windll = types.SimpleNamespace(kernel32=Kernel32)  # type: ignore[attr-defined]
    change_files()
    msvcrt = types.ModuleType("msvcrt")
    msvcrt.locking, msvcrt.LK_NBLCK = locking, 2  # type: ignore[attr-defined]
    sys.modules["msvcrt"] = msvcrt
    sys.platform, before = "win32", sys.platform
    try:
        import longtail.models.platform
    finally:
        sys.platform = before


class Kernel32:
    """The one call of it."""

    @staticmethod
    def K32GetProcessMemoryInfo(process, counters, size):  # noqa: N802
        assert process.value == ctypes.c_void_p(-1).value and size == counters[0] == 72
        usage = real_resource.getrusage(real_resource.RUSAGE_SELF)
        counters[1] = usage.ru_maxrss * 2**10
        calls.add("memory")


def locking(handle: int, mode: int, size: int) -> None:
    """Lock bytes from where the descriptor stands, without waiting, until it is closed."""
    assert (mode, size) == (2, 1)
    assert os.lseek(handle, 0, os.SEEK_CUR) > os.fstat(handle).st_size
    calls.add("lock")
    try:
        real_fcntl.flock(handle, real_fcntl.LOCK_EX | real_fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise PermissionError(errno.EACCES, "Permission denied") from error


def used_files() -> Iterator[str]:
    """Return the paths of all files that this process has open or mapped."""
    for entry in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue
    with plain_open("/proc/self/maps", encoding="utf-8") as lines:
        yield from (line.split(maxsplit=5)[5].rstrip() for line in lines if "/" in line)


def refuse_if_used(path) -> None:
    """Raise what Windows raises where a file, or one in a folder, is in use."""
    if isinstance(path, int):
        return
    real = os.path.realpath(path)
    if any(name == real or name.startswith(f"{real}/") for name in used_files()):
        raise PermissionError(errno.EACCES, "The process cannot access the file", str(path))


def refuse_name(path) -> None:
    """Raise what Windows raises for a name that no file can have."""
    name = "" if isinstance(path, int) else os.path.basename(os.fspath(path))
    if name not in {".", ".."} and FORBIDDEN.search(name):
        raise OSError(errno.EINVAL, "Invalid argument", str(path))


plain_open = io.open


def change_files() -> None:
    """Put the rules of files around the functions of `os` and `io`."""
    import builtins

    os_open, fsync, mkdir = os.open, os.fsync, os.mkdir
    unlink, rename, replace, rmdir = os.unlink, os.rename, os.replace, os.rmdir

    def open_text(
        file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *rest, **named
    ):
        if "b" not in mode:
            encoding = encoding or "cp1252"
            if newline is None and set(mode) & set("wax+"):
                newline = "\r\n"
        if set(mode) & set("wax"):
            refuse_name(file)
        return plain_open(file, mode, buffering, encoding, errors, newline, *rest, **named)

    def open_descriptor(path, flags, mode=0o777, *, dir_fd=None):
        is_nameless = flags & os.O_TMPFILE == os.O_TMPFILE  # Windows has them, too
        if dir_fd is None and os.path.isdir(path) and not is_nameless:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return os_open(path, flags, mode, dir_fd=dir_fd)

    def synchronise(handle):
        handle = handle if isinstance(handle, int) else handle.fileno()
        if real_fcntl.fcntl(handle, real_fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        fsync(handle)

    def remove(path, *, dir_fd=None):
        refuse_if_used(path if dir_fd is None else f"/proc/self/fd/{dir_fd}/{path}")
        unlink(path, dir_fd=dir_fd)

    def move(source, target, **named):
        refuse_name(target)
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "File exists", str(target))
        refuse_if_used(source)
        rename(source, target, **named)

    def put(source, target, **named):
        refuse_name(target)
        for path in (source, target):
            refuse_if_used(path)
        if os.path.isdir(target):
            raise PermissionError(errno.EACCES, "Access is denied", str(target))
        calls.add("replace")
        replace(source, target, **named)

    def make(path, *rest, **named):
        refuse_name(path)
        mkdir(path, *rest, **named)

    def link(*_, **__):
        raise OSError(errno.EPERM, "A required privilege is not held by the client")

    builtins.open = io.open = pathlib.io.open = open_text  # type: ignore[attr-defined]
    os.open, os.fsync, os.mkdir, os.symlink = open_descriptor, synchronise, make, link
    os.unlink, os.remove, os.rename, os.replace, os.rmdir = remove, remove, move, put, rmdir
    shutil._use_fd_functions = False  # it would open folders


if __name__ == "__main__":
    pretend()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="cp1252")  # what a pipe takes
    try:
        if sys.argv[1] == "-c":
            exec(sys.argv[2])  # noqa: S102
        else:
            import longtail

            longtail.main()
    finally:
        print("pretended:", *sorted(calls), file=sys.stderr)
