"""The table of records: the statements that every database is asked, within one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from longtail.service.feedback.entries import Entry, Record

_IDS = 500
"""In one statement."""
_LAST = "\U0010ffff"
"""Behind all that ids hold."""

T = TypeVar("T")


class Connection(Protocol):
    """A connection within a transaction."""

    @property
    def table(self) -> str:
        """Name of the table of records."""
        ...

    @property
    def limit(self) -> str:
        """The clause by which the database gives the first `:limit` rows."""
        ...

    def fetch(self, statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """Return all rows that a query finds; values stand in it as `:name`."""
        ...

    def run(self, statement: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Execute a statement for each of these rows."""
        ...


class Records:
    """The records, as one transaction sees them; `digest` is null where an entry was deleted."""

    def __init__(self, connection: Connection) -> None:
        """Take the connection of the transaction."""
        self._connection = connection

    def digests(self, ids: Iterable[str]) -> dict[str, str | None]:
        """Return the digest of each id that is taken; None where its entry was deleted."""
        found: dict[str, str | None] = {}
        left = iter(dict.fromkeys(ids))
        while part := list(islice(left, _IDS)):
            values = {f"id{number}": name for number, name in enumerate(part)}
            names = ", ".join(f":{name}" for name in values)
            statement = "SELECT id, digest FROM {records} WHERE id IN ({ids})"
            found.update(self._fetch(statement.replace("{ids}", names), values))
        return found

    def add(self, entries: Iterable[Entry]) -> None:
        """Append entries whose ids are free."""
        self._append([(each.id, each.digest, each.to_json()) for each in entries])

    def bury(self, ids: Sequence[str], deleted_at: str) -> None:
        """Put records without content in the place of entries, at the end."""
        content, last = json.dumps({"deleted_at": deleted_at}), self._last_sequence()
        self._run(
            "UPDATE {records} SET sequence = :sequence, digest = NULL, content = :content "
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
        statement = "SELECT count(*) FROM {records} WHERE id >= :first AND id < :last"
        ((number,),) = self._fetch(statement, {"first": record_id, "last": series + _LAST})
        return bool(number)

    def before(self, series: str, record_id: str) -> list[str]:
        """Return the ids of the entries of a series that come before an id."""
        found = self._fetch(
            "SELECT id FROM {records} WHERE id >= :first AND id < :last AND digest IS NOT NULL",
            {"first": series, "last": record_id},
        )
        return [name for (name,) in found]

    def page(self, after: int, limit: int) -> list[Record]:
        """Return the records that come after a sequence number, in their order."""
        statement = (
            "SELECT sequence, id, content FROM {records} WHERE sequence > :after ORDER BY sequence "
        )
        found = self._fetch(statement + self._connection.limit, {"after": after, "limit": limit})
        return [Record(sequence, name, json.loads(content)) for sequence, name, content in found]

    def _append(self, rows: Sequence[tuple[str, str | None, str]]) -> None:
        last = self._last_sequence() if rows else 0
        self._run(
            "INSERT INTO {records} (sequence, id, digest, content) "
            "VALUES (:sequence, :id, :digest, :content)",
            [
                {"sequence": number, "id": name, "digest": digest, "content": content}
                for number, (name, digest, content) in enumerate(rows, last + 1)
            ],
        )

    def _last_sequence(self) -> int:
        """Return the highest number; nobody else writes before this transaction ends."""
        ((last,),) = self._fetch("SELECT max(sequence) FROM {records}", {})
        return int(last or 0)

    def _fetch(self, statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        return self._connection.fetch(self._of_table(statement), values)

    def _run(self, statement: str, rows: Sequence[Mapping[str, object]]) -> None:
        if rows:
            self._connection.run(self._of_table(statement), rows)

    def _of_table(self, statement: str) -> str:
        return statement.replace("{records}", self._connection.table)


class Database(Protocol):
    """Where records are kept; of one thread. It is opened at its first use, and after failures."""

    def write(self, work: Callable[[Records], T]) -> T:
        """Do some work, all of it or nothing; at the end it is on the disk.

        No other process writes meanwhile, so that records become visible in their order. Where a
        database loses its connection, the work is done once more, over a new one.

        Raises:
            FeedbackStoreError: Nothing was done; or, where a connection was lost, perhaps all.
        """
        ...

    def read(self, work: Callable[[Records], T]) -> T:
        """Do some work that only reads.

        Raises:
            FeedbackStoreError: It can't be read.
        """
        ...

    def check(self) -> None:
        """Look whether all of it can be read.

        Raises:
            FeedbackStoreError: It is damaged.
        """
        ...

    def erase(self) -> bool:
        """Overwrite what was deleted, as far as the database does; return whether that is done."""
        ...

    def close(self) -> None:
        """Let go of it; the next use opens it again."""
        ...
