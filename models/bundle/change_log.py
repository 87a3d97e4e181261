"""The audit log of a registry: who changed it, when, and how; lines are only ever appended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtail.models.files.durable import append_entry, read_entries
from longtail.models.files.failures import doing
from longtail.models.platform import user_name

CHANGES_NAME = "changes.jsonl"
"""In the folder of the registry."""
_NO_LOG = "no line of the log of changes of a registry; restore the file, or move it away"


@dataclass(frozen=True, slots=True)
class Author:
    """Who asks for a change.

    Attributes:
        user: User of the operating system; None where a service was asked over HTTP.
        key: Name of the key that a service was asked with.
        request_id: Of that request.
    """

    user: str | None = None
    key: str | None = None
    request_id: str | None = None

    @classmethod
    def of_process(cls) -> Author:
        """Return the user who runs this process."""
        return cls(user=user_name())

    def to_json(self) -> dict[str, str]:
        """Return what is known."""
        fields = {"user": self.user, "key": self.key, "request_id": self.request_id}
        return {name: value for name, value in fields.items() if value is not None}


class ChangeLog:
    """The log of one registry; writers hold the registry's lock."""

    def __init__(self, folder: Path) -> None:
        """Name the registry's folder; the file is made with its first line."""
        self.path = folder / CHANGES_NAME

    def append(
        self,
        action: str,
        version: int,
        digest: str | None,
        current: tuple[int | None, int | None],
        author: Author | None,
    ) -> None:
        """Add a change that is about to be made; the line is on disk when this returns.

        So there is no change without a line. After a crash the last change may not have been made;
        the same command then adds a line of its own.

        Args:
            action: "train", "learn", "activate", "rollback", "remove", ...
            version: That is published, activated or removed.
            digest: Of that version; None where it can't be read.
            current: What `current` names before and after.
            author: Who asked for it; None: the user who runs this process.
        """
        before, after = current
        by = (author or Author.of_process()).to_json()
        entry = {
            "action": action, "version": version, "from": before, "to": after, "digest": digest,
        }  # fmt: skip
        with doing("writing the log of changes", self.path):
            append_entry(self.path, entry | by)

    def entries(self) -> list[dict[str, Any]]:
        """Return all changes, the oldest first: "at" (UTC), the fields of `append`, and `Author`'s.

        Raises:
            FileContentError: A line is none of this log.
        """
        with doing("reading the log of changes", self.path):
            return read_entries(self.path, "action", _NO_LOG)
