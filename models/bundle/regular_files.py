"""Whether a path is a file that can be read to an end: no pipe, socket, device or link."""

from __future__ import annotations

import stat
from pathlib import Path

_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


def check_regular_file(path: Path, max_bytes: int | None = None) -> int:
    """Return the size of a file in bytes, without opening it: opening a pipe can wait for ever.

    Args:
        path: Of the file.
        max_bytes: The largest size allowed; None: any.

    Raises:
        ValueError: It is no regular file, or larger. A link is none, wherever it leads.
        OSError: There is none, or it can't be looked at.
    """
    found = path.lstat()
    for is_kind, what in _KINDS:
        if is_kind(found.st_mode):
            raise ValueError(f"it is not a file but {what}")
    if max_bytes is not None and found.st_size > max_bytes:
        raise ValueError(f"it has {found.st_size} bytes, expected at most {max_bytes}")
    return found.st_size
