"""The log of promotions: one JSON object a line, which can be read a year later.

A promotion writes these lines, in this order, each with the time, both versions and their digests:

    judged     what the held-out documents say, with all figures, the rules and the reasons
    canary     the canary is about to begin: until when, and the counters before it
    decided    promote or roll back, and why; written before anything is done about it
    done       it is done

So the last line shows where a killed run stopped, and its work can be finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from longtail.models.errors import ConfigError
from longtail.models.files.durable import append_entry, read_entries
from longtail.models.files.failures import doing
from longtail.models.files.outputs import check_writable_folder

LOG_NAME = "promotions.jsonl"
"""Name of the file in the folder of the registry, unless another file is named."""

_NO_LOG = "no line of a log of promotions; move the file away, or name another one with --log"

Event: TypeAlias = Literal["judged", "canary", "decided", "done"]


class PromotionLog:
    """A file to which lines are appended."""

    def __init__(self, path: Path) -> None:
        """Name the file; it is made with its first line."""
        self.path = path

    def check_writable(self) -> None:
        """Check, before the work, that the file can be appended to."""
        if self.path.exists() and not self.path.is_file():
            raise ConfigError(f"--log {str(self.path)!r}: is no file; choose another path")
        check_writable_folder(self.path.parent, "--log")
        self.entries()

    def append(self, event: Event, fields: Mapping[str, Any]) -> None:
        """Add a line; it is on the disk when this returns.

        Args:
            event: The event.
            fields: The fields of the line.
        """
        with doing("writing the log of promotions", self.path):
            append_entry(self.path, {"event": event, **fields})

    def entries(self) -> list[dict[str, Any]]:
        """Return all lines; a last one that was not written to its end is left out."""
        with doing("reading the log of promotions", self.path):
            return read_entries(self.path, "event", _NO_LOG)

    def unfinished(self, candidate_digest: str) -> list[dict[str, Any]]:
        """Return the lines of the last promotion of a candidate if its canary has not ended.

        Args:
            candidate_digest: Digest of the version to promote.

        Returns:
            From the line "canary" on; empty where there is none, or it is done.
        """
        kept: list[dict[str, Any]] = []
        for entry in self.entries():
            if entry.get("candidate_digest") != candidate_digest:
                continue
            if entry["event"] in {"judged", "done"}:
                kept = []
            elif entry["event"] == "canary" or kept:
                kept.append(entry)
        return kept
