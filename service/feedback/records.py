"""The table of records: the statements within one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import islice

from longtail.service.feedback.entries import Entry, Record

_IDS = 500
"""In one statement."""
_LAST = "\U0010ffff"
"""Behind all that ids hold."""


class Records:
    """The records, as one transaction sees them; `digest` is null where an entry was deleted."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Take the connection of the transaction."""
        self._connection = connection

    def digests(self, ids: Iterable[str]) -> dict[str, str | None]:
        """Return the digest of each id that is taken; None where its entry was deleted."""
        found: dict[str, str | None] = {}
        left = iter(dict.fromkeys(ids))
        while part := list(islice(left, _IDS)):
            marks = ", ".join("?" * len(part))
            statement = f"SELECT id, digest FROM records WHERE id IN ({marks})"  # noqa: S608
            found.update(self._connection.execute(statement, part))
        return found

    def add(self, entries: Iterable[Entry]) -> None:
        """Append entries whose ids are free."""
        self._append([(each.id, each.digest, each.to_json()) for each in entries])

    def bury(self, ids: Sequence[str], deleted_at: str) -> None:
        """Replace entries by records without content, at the end: only their ids stay taken."""
        content, last = json.dumps({"deleted_at": deleted_at}), self._last_sequence()
        self._connection.executemany(
            "UPDATE records SET sequence = :sequence, digest = NULL, content = :content "
            "WHERE id = :id",
            [
                {"sequence": number, "id": name, "content": content}
                for number, name in enumerate(ids, last + 1)
            ],
        )

    def add_deleted(self, record_id: str, deleted_at: str) -> None:
        """Append a record of an entry that was deleted before it was there."""
        self._append([(record_id, None, json.dumps({"deleted_at": deleted_at}))])

    def has_since(self, series: str, record_id: str) -> bool:
        """Whether a series has this id, or a later one."""
        statement = "SELECT count(*) FROM records WHERE id >= :first AND id < :last"
        ((number,),) = self._connection.execute(
            statement, {"first": record_id, "last": series + _LAST}
        )
        return bool(number)

    def before(self, series: str, record_id: str) -> list[str]:
        """Return the ids of the entries of a series that come before an id."""
        found = self._connection.execute(
            "SELECT id FROM records WHERE id >= :first AND id < :last AND digest IS NOT NULL",
            {"first": series, "last": record_id},
        )
        return [name for (name,) in found]

    def page(self, after: int, limit: int) -> list[Record]:
        """Return the records that come after a sequence number, in their order."""
        statement = (
            "SELECT sequence, id, content FROM records WHERE sequence > :after ORDER BY sequence "
            "LIMIT :limit"
        )
        found = self._connection.execute(statement, {"after": after, "limit": limit})
        return [Record(sequence, name, json.loads(content)) for sequence, name, content in found]

    def _append(self, rows: Sequence[tuple[str, str | None, str]]) -> None:
        last = self._last_sequence() if rows else 0
        self._connection.executemany(
            "INSERT INTO records (sequence, id, digest, content) "
            "VALUES (:sequence, :id, :digest, :content)",
            [
                {"sequence": number, "id": name, "digest": digest, "content": content}
                for number, (name, digest, content) in enumerate(rows, last + 1)
            ],
        )

    def _last_sequence(self) -> int:
        """Return the highest number; nobody else writes before this transaction ends."""
        ((last,),) = self._connection.execute("SELECT max(sequence) FROM records")
        return int(last or 0)
