"""The store of feedback: an SQLite database in write-ahead mode, to which records are appended.

A record is acknowledged after its transaction is on the disk (`synchronous=FULL`), so a process may
be killed at any byte. Deleting overwrites (`secure_delete`) and empties the write-ahead log.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from models.files.durable import sync_folder
from models.files.failures import reason_of
from service.errors import FeedbackConflictError, FeedbackStoreError
from service.feedback.entries import Counts, Entry, Receipt, Record

FILE_NAME = "feedback.sqlite3"
_APPLICATION_ID = 0x4C544642  # "LTFB"
_TABLE = """
CREATE TABLE IF NOT EXISTS records (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    digest TEXT,
    content TEXT NOT NULL
)
"""
"""`digest` is that of an entry; null of one that was deleted."""
_COUNTS = """
SELECT count(digest), count(*) - count(digest), count(json_extract(content, '$.text')),
    sum(json_array_length(content, '$.accepted')), sum(json_array_length(content, '$.rejected')),
    sum(json_array_length(content, '$.added')), sum(json_array_length(content, '$.proposed'))
FROM records
"""
_FULL = (
    "is full: no space is left on its disk, or it has LONGTAIL_MAX_FEEDBACK_BYTES; free some "
    "space, or raise the limit"
)
_DAMAGED = (
    "is damaged, or no database; move its files away and restore an export with "
    "'longtail feedback import'"
)
_UNREACHABLE = "can't be opened or written to; check its folder and the permissions"
_REASONS = {
    sqlite3.SQLITE_BUSY: "is locked by another process; try again when that has ended",
    sqlite3.SQLITE_LOCKED: "is locked by another process; try again when that has ended",
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CANTOPEN: _UNREACHABLE,
    sqlite3.SQLITE_READONLY: _UNREACHABLE,
    sqlite3.SQLITE_PERM: _UNREACHABLE,
    sqlite3.SQLITE_IOERR: "can't be read or written: the disk failed, or is full",
}
_LAST = "\U0010ffff"
"""Behind all that ids hold."""
_PRIMARY_CODE = 0xFF
"""Of SQLite's result codes; the bits above say more of the same."""


class FeedbackStore:
    """The records in a folder; of one thread. It is opened at its first use, and after failures."""

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int | None = None,
        wait_s: float = 5.0,
        must_exist: bool = False,
    ) -> None:
        """Name a store.

        Args:
            folder: Where it lies; made when it is needed.
            max_bytes: Most bytes of its database; None: as many as the disk has.
            wait_s: Seconds to wait for other processes.
            must_exist: Whether a store that is not there is an error, and not made.
        """
        self._folder = folder
        self._max_bytes = max_bytes
        self._wait_s = wait_s
        self._must_exist = must_exist
        self._database: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files; the next use opens them again."""
        if self._database is not None:
            with suppress(sqlite3.Error):
                self._database.close()
            self._database = None

    def append(
        self, groups: Sequence[Sequence[Entry]]
    ) -> list[list[Receipt] | FeedbackConflictError]:
        """Store entries, all in one transaction; they are on the disk when this returns.

        Args:
            groups: Entries that belong together: all of a group are stored, or none.

        Returns:
            For each group what became of its entries; or why it is refused: an id is taken.

        Raises:
            FeedbackStoreError: Nothing was stored; the message says why.
        """
        with self._opened() as database, _transaction(database):
            return [_append_group(database, group) for group in groups]

    def replace(self, series: str, record_id: str, entry: Entry | None) -> bool:
        """Store an entry in place of all earlier ones of its series, which are erased.

        What comes late changes nothing: ids of a series rise with what happened, and what has the
        last of them counts, whatever came first.

        Args:
            series: What the ids of the series begin with.
            record_id: Of the entry; it begins so.
            entry: The entry; None: nothing, so that the earlier ones are erased alone.

        Returns:
            Whether it is new.

        Raises:
            FeedbackStoreError: It can't be done.
        """
        with self._opened() as database:
            with _transaction(database):
                if _is_late(database, series, record_id):
                    return False
                earlier = database.execute(
                    "SELECT id FROM records WHERE id >= ? AND id < ? AND digest IS NOT NULL",
                    (series, record_id),
                ).fetchall()
                for (entry_id,) in earlier:
                    _bury(database, entry_id)
                if entry is None:
                    _bury(database, record_id)
                else:
                    _insert(database, [entry])
            if earlier:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return True

    def delete(self, entry_id: str) -> bool:
        """Erase an entry but for its id, which stays taken; return whether there is such an id.

        It is no error if that was done before: it makes sure that no bytes are left.

        Raises:
            FeedbackStoreError: It can't be done, or another process still reads what was erased.
        """
        with self._opened() as database:
            with _transaction(database):
                found = database.execute("SELECT digest FROM records WHERE id = ?", (entry_id,))
                row = found.fetchone()
                if row is None:
                    return False
                if row[0] is not None:
                    _bury(database, entry_id)
            (is_busy, *_) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_busy:
            raise FeedbackStoreError(
                f"{entry_id[:100]!r} is deleted, but its bytes are not erased yet, because another "
                "process reads the store; delete it once more"
            )
        return True

    def page(self, after: int, limit: int) -> list[Record]:
        """Return the records that come after a sequence number, in their order.

        Raises:
            FeedbackStoreError: They can't be read.
        """
        with self._opened() as database:
            rows = database.execute(
                "SELECT sequence, id, content FROM records WHERE sequence > ? "
                "ORDER BY sequence LIMIT ?",
                (after, limit),
            ).fetchall()
        return [Record(sequence, name, json.loads(content)) for sequence, name, content in rows]

    def counts(self) -> Counts:
        """Return how much there is, after a check of the whole database.

        Raises:
            FeedbackStoreError: It is damaged or can't be read.
        """
        with self._opened() as database:
            (state,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise FeedbackStoreError(f"the feedback store {_DAMAGED}")
            return Counts(*(number or 0 for number in database.execute(_COUNTS).fetchone()))

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Give the connection, and tell its errors; after one it is opened anew.

        Yields:
            The connection.

        Raises:
            FeedbackStoreError: The store can't be used.
        """
        try:
            if self._database is None:
                self._database = self._open()
            yield self._database
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise FeedbackStoreError(f"the feedback store {_reason(error)}") from error

    def _open(self) -> sqlite3.Connection:
        path = self._folder / FILE_NAME
        is_new = not path.exists()
        if is_new and self._must_exist:
            raise FeedbackStoreError(
                f"{str(self._folder)!r} holds no feedback ({FILE_NAME}); name the folder that "
                "LONGTAIL_FEEDBACK names"
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(path, timeout=self._wait_s, isolation_level=None)
        try:
            self._prepare(database)
        except BaseException:
            database.close()
            raise
        if is_new:
            sync_folder(self._folder)
            sync_folder(self._folder.resolve().parent)
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (num_tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if num_tables and application != _APPLICATION_ID:
            raise FeedbackStoreError(
                f"{FILE_NAME} is the database of another program; choose another folder"
            )
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA secure_delete = ON")
        if not num_tables:
            with _transaction(database):
                database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                database.execute(_TABLE)
        if self._max_bytes is not None:
            (page_bytes,) = database.execute("PRAGMA page_size").fetchone()
            database.execute(f"PRAGMA max_page_count = {max(1, self._max_bytes // page_bytes)}")


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Do all or nothing; at the end it is on the disk."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite may have done it by itself
            database.execute("ROLLBACK")
        raise


def _append_group(
    database: sqlite3.Connection, group: Sequence[Entry]
) -> list[Receipt] | FeedbackConflictError:
    new: dict[str, Entry] = {}
    receipts = []
    for entry in group:
        known = _known_digest(database, entry.id, new)
        if known not in ("", entry.digest):
            return _conflict(entry.id, is_deleted=known is None)
        receipts.append(Receipt(entry.id, is_new=not known))
        if not known:
            new[entry.id] = entry
    _insert(database, new.values())
    return receipts


def _insert(database: sqlite3.Connection, entries: Iterable[Entry]) -> None:
    database.executemany(
        "INSERT INTO records (id, digest, content) VALUES (?, ?, ?)",
        [(entry.id, entry.digest, entry.to_json()) for entry in entries],
    )


def _is_late(database: sqlite3.Connection, series: str, record_id: str) -> bool:
    """Whether a series has this id, or a later one."""
    found = database.execute(
        "SELECT 1 FROM records WHERE id >= ? AND id < ? LIMIT 1", (record_id, series + _LAST)
    )
    return found.fetchone() is not None


def _known_digest(database: sqlite3.Connection, entry_id: str, new: dict[str, Entry]) -> str | None:
    """Return the digest of what has an id; None where that was deleted, "" where nothing has it."""
    if entry_id in new:
        return new[entry_id].digest
    row = database.execute("SELECT digest FROM records WHERE id = ?", (entry_id,)).fetchone()
    digest: str | None = "" if row is None else row[0]
    return digest


def _conflict(entry_id: str, *, is_deleted: bool) -> FeedbackConflictError:
    what = "was deleted" if is_deleted else "is stored with another text or other labels"
    return FeedbackConflictError(
        f"feedback with the id {entry_id[:100]!r} {what}; nothing of this request was stored; send "
        "it with a new id"
    )


def _bury(database: sqlite3.Connection, entry_id: str) -> None:
    """Put a record without content in the place of an entry."""
    deleted_at = json.dumps({"deleted_at": now()})
    database.execute("DELETE FROM records WHERE id = ?", (entry_id,))
    database.execute("INSERT INTO records (id, content) VALUES (?, ?)", (entry_id, deleted_at))


def now() -> str:
    """Return the time as records have it: ISO 8601, UTC, in milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _reason(error: sqlite3.Error | OSError) -> str:
    if isinstance(error, OSError):
        return f"can't be used: {reason_of(error)}"
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    return _REASONS.get(code, f"can't be used ({error}); look at its files")
