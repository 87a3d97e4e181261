"""The store of feedback: records that are appended to a file of SQLite.

What is acknowledged is on the disk. Ids are taken once, even by concurrent writers; of a deleted
entry nothing but its id is left.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from longtail.models.errors import ConfigError
from longtail.models.feedback import Entry
from longtail.service.errors import FeedbackConflictError, FeedbackStoreError
from longtail.service.feedback.sqlite import FILE_NAME, SqliteDatabase


@dataclass(frozen=True, slots=True)
class Record:
    """What the store keeps under an id: an entry, or that it was deleted.

    Attributes:
        sequence: Rises with every record that is written.
        id: The entry's id.
        content: The fields of the entry; of a deleted one `deleted_at` alone.
    """

    sequence: int
    id: str
    content: Mapping[str, Any]

    def to_line(self) -> str:
        """Return the record as a line of an export."""
        fields = {"sequence": self.sequence, "id": self.id, **self.content}
        return json.dumps(fields, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of an entry.

    Attributes:
        id: The entry's id.
        is_new: Whether it was stored now, and not before.
    """

    id: str
    is_new: bool


_URL = re.compile(r"[A-Za-z][\w+.-]+:/")
"""Also of a path, which has one slash."""
_PAGE = 1000
"""Records that are read at a time."""


class FeedbackStore:
    """The records in one folder; of one thread. Opened at its first use, and after failures."""

    def __init__(
        self,
        folder: str | Path,
        *,
        max_bytes: int | None = None,
        wait_s: float = 5.0,
        must_exist: bool = False,
    ) -> None:
        """Name a store.

        Args:
            folder: Folder of an SQLite database; what is not there is made when it is needed.
            max_bytes: Most bytes of the database; None: as many as the disk has.
            wait_s: Seconds to wait for other processes.
            must_exist: Whether a store that is not there is an error, and not made.
        """
        if _URL.match(str(folder)):  # not shown: it may hold a password
            raise ConfigError(
                "feedback: got a URL; expected a folder on a disk of this machine (databases on "
                "servers are not supported)"
            )
        self.file = Path(folder) / FILE_NAME
        self._database = SqliteDatabase(
            self.file, max_bytes=max_bytes, wait_s=wait_s, must_exist=must_exist
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database; the next use opens it again."""
        self._database.close()

    def append(
        self, groups: Sequence[Sequence[Entry]]
    ) -> list[list[Receipt] | FeedbackConflictError]:
        """Store entries, all in one transaction; they are on the disk when this returns.

        Args:
            groups: Entries that belong together: all of a group are stored, or none.

        Returns:
            For each group what became of its entries; or why it is refused: an id is taken.
        """
        return self._database.write(partial(_append, groups=groups))

    def delete(self, entry_id: str) -> bool:
        """Erase an entry but for its id, which stays taken; return whether there is such an id.

        It is no error if that was done before: it makes sure that no bytes are left.
        """
        if not self._database.write(partial(_delete, entry_id=entry_id)):
            return False
        if not self._database.erase():
            raise FeedbackStoreError(
                f"{entry_id[:100]!r} is deleted, but its bytes are not erased yet, because another "
                "process reads the store; delete it once more"
            )
        return True

    def page(self, after: int, limit: int) -> list[Record]:
        """Return the records that come after a sequence number, in their order."""
        return self._database.read(partial(_page, after=after, limit=limit))

    def records(self) -> Iterator[Record]:
        """Yield all records in their order."""
        last = 0
        while records := self.page(last, _PAGE):
            last = records[-1].sequence
            yield from records


def _append(
    database: sqlite3.Connection, groups: Sequence[Sequence[Entry]]
) -> list[list[Receipt] | FeedbackConflictError]:
    known = _digests(database, [entry.id for group in groups for entry in group])
    results: list[list[Receipt] | FeedbackConflictError] = []
    new: list[Entry] = []
    for group in groups:
        taken: dict[str, Entry] = {}
        result = _receipts(group, known, taken)
        results.append(result)
        if isinstance(result, list):
            new += taken.values()
            known |= {entry.id: entry.digest for entry in taken.values()}
    database.executemany(
        "INSERT INTO records (sequence, id, digest, content) VALUES (?, ?, ?, ?)",
        [
            (number, each.id, each.digest, each.to_json())
            for number, each in enumerate(new, _next_sequence(database))
        ],
    )
    return results


def _receipts(
    group: Sequence[Entry], known: Mapping[str, str | None], taken: dict[str, Entry]
) -> list[Receipt] | FeedbackConflictError:
    """Return the outcome of each entry of a group; new entries are added to `taken`."""
    receipts = []
    for entry in group:
        digest = taken[entry.id].digest if entry.id in taken else known.get(entry.id, "")
        if digest not in ("", entry.digest):
            what = "is stored with another text or other labels" if digest else "was deleted"
            return FeedbackConflictError(
                f"feedback with the id {entry.id[:100]!r} {what}; nothing of this request was "
                "stored; send it with a new id"
            )
        receipts.append(Receipt(entry.id, is_new=not digest))
        if not digest:
            taken[entry.id] = entry
    return receipts


def _delete(database: sqlite3.Connection, entry_id: str) -> bool:
    found = _digests(database, [entry_id])
    if found.get(entry_id) is not None:
        # A tombstone, as the last record: the id stays taken, the content is erased.
        database.execute(
            "UPDATE records SET sequence = ?, digest = NULL, content = ? WHERE id = ?",
            (_next_sequence(database), json.dumps({"deleted_at": now()}), entry_id),
        )
    return bool(found)


def _page(database: sqlite3.Connection, after: int, limit: int) -> list[Record]:
    statement = (
        "SELECT sequence, id, content FROM records WHERE sequence > ? ORDER BY sequence LIMIT ?"
    )
    found = database.execute(statement, (after, limit))
    return [Record(sequence, name, json.loads(content)) for sequence, name, content in found]


def _digests(database: sqlite3.Connection, ids: Iterable[str]) -> dict[str, str | None]:
    statement = "SELECT id, digest FROM records WHERE id IN (SELECT value FROM json_each(?))"
    return dict(database.execute(statement, (json.dumps([*ids]),)))


def _next_sequence(database: sqlite3.Connection) -> int:
    ((last,),) = database.execute("SELECT max(sequence) FROM records")
    return 1 + (last or 0)


def now() -> str:
    """Return the time as records have it: ISO 8601, UTC, in milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
