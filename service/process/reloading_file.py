"""Files that are read again when they have changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

Content = TypeVar("Content")


class ReloadingFile(Generic[Content]):
    """What a file holds now; where that can't be read, what it held before."""

    def __init__(self, path: Path, parse: Callable[[Path], Content]) -> None:
        """Read the file.

        Args:
            path: The file.
            parse: Reads it; what it raises is raised here, and by `refresh`.
        """
        self.path = path
        self._parse = parse
        self._stamp = _stamp(path)
        self.content = parse(path)

    def refresh(self) -> bool:
        """Read the file if it has changed since it was last tried; return whether it was read.

        Where it can't be read, what `parse` raises is raised once; `content` stays, until the file
        changes again.
        """
        stamp = _stamp(self.path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        self.content = self._parse(self.path)
        return True


def _stamp(path: Path) -> tuple[int, ...]:
    """Return what differs when a file has changed; nothing where there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino)
