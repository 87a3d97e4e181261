"""The log of promotions: one JSON object a line, which can be read a year later.

A promotion writes these lines, in this order, each with the time, both versions and their digests:

    judged     what the held-out documents say, with all figures, the rules and the reasons
    canary     the canary is about to begin: until when, and the counters before it
    decided    promote or roll back, and why; written before anything is done about it
    done       it is done

So a run that was killed is told by its last line, and what it began can be finished.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from models.errors import ConfigError, FileContentError
from models.files.durable import sync_folder
from models.files.failures import doing
from models.files.outputs import check_writable_folder

LOG_NAME = "promotions.jsonl"
"""In the folder of the registry, unless another file is named."""

_BEGIN = b'{"at": '
"""Of every line."""

Event: TypeAlias = Literal["judged", "canary", "decided", "done"]


class PromotionLog:
    """A file to which lines are appended."""

    def __init__(self, path: Path) -> None:
        """Name the file; it is made with its first line."""
        self.path = path

    def check_writable(self) -> None:
        """Refuse a file that can't be appended to, before the work.

        Raises:
            ConfigError: It is no file, its folder can't be written to, or it holds something else.
        """
        if self.path.exists() and not self.path.is_file():
            raise ConfigError(f"--log {str(self.path)!r}: is no file; choose another path")
        check_writable_folder(self.path.parent, "--log")
        self.entries()

    def append(self, event: Event, fields: Mapping[str, Any]) -> None:
        """Add a line; it is on the disk when this returns.

        Args:
            event: What happened.
            fields: What is to be known of it.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = json.dumps({"at": now, "event": event, **fields}, ensure_ascii=False)
        with doing("writing the log of promotions", self.path):
            is_new = not self.path.exists()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                _cut_torn_line(file.fileno())
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                sync_folder(self.path.parent)

    def entries(self) -> list[dict[str, Any]]:
        """Return all lines; a last one that was not written to its end is left out.

        Raises:
            FileContentError: A line is no JSON object with an event.
        """
        if not self.path.exists():
            return []
        with doing("reading the log of promotions", self.path):
            *lines, torn = self.path.read_bytes().split(b"\n")
        if not _is_begun(torn):
            lines.append(torn)
        return [self._entry_of(number, line) for number, line in enumerate(lines, 1)]

    def unfinished(self, candidate_digest: str) -> list[dict[str, Any]]:
        """Return the lines of the last promotion of a candidate if its canary has not ended.

        Args:
            candidate_digest: Of the version to promote.

        Returns:
            From the line "canary" on; empty where there is none, or it is done.
        """
        found: list[dict[str, Any]] = []
        for entry in self.entries():
            if entry.get("candidate_digest") != candidate_digest:
                continue
            if entry["event"] in {"judged", "done"}:
                found = []
            elif entry["event"] == "canary" or found:
                found.append(entry)
        return found

    def _entry_of(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or "event" not in entry:
            raise FileContentError(
                f"{self.path}, line {number}: no line of a log of promotions; move the file away, "
                "or name another one with --log"
            )
        return entry


def _is_begun(line: bytes) -> bool:
    """Whether a line without an end may be one of ours, or nothing."""
    return line[: len(_BEGIN)] == _BEGIN[: len(line)]


def _cut_torn_line(handle: int) -> None:
    """Cut off a last line whose writer was killed: nothing was done upon it."""
    size = os.fstat(handle).st_size
    content = os.pread(handle, size, 0)
    end = content.rfind(b"\n") + 1
    if end < size and _is_begun(content[end:]):
        os.ftruncate(handle, end)
