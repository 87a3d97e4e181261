"""A file of SQLite in write-ahead mode, over the standard library alone.

A transaction is on the disk when it ends (`synchronous=FULL`), so a process may be killed at any
byte. Deleting overwrites (`secure_delete`) and empties the write-ahead log.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

from models.files.durable import make_private_file, make_private_folder, sync_folder
from models.files.failures import reason_of
from service.errors import FeedbackStoreError
from service.feedback.records import Records

FILE_NAME = "feedback.sqlite3"
_APPLICATION_ID = 0x4C544642  # "LTFB"
_SCHEMA = 0
"""SQLite's `user_version` of the table below."""
_TABLE = """
CREATE TABLE IF NOT EXISTS records (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    digest TEXT,
    content TEXT NOT NULL
)
"""
_FULL = (
    "is full: no space is left on its disk, or it has LONGTAIL_MAX_FEEDBACK_BYTES; free some "
    "space, or raise the limit"
)
_DAMAGED = (
    "is damaged, or no database; move its files away and restore an export with "
    "'longtail feedback import'"
)
LOCKED = "is locked by another process; try again when that has ended"
_UNREACHABLE = "can't be opened or written to; check its folder and the permissions"
_REASONS = {
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CANTOPEN: _UNREACHABLE,
    sqlite3.SQLITE_READONLY: _UNREACHABLE,
    sqlite3.SQLITE_PERM: _UNREACHABLE,
    sqlite3.SQLITE_IOERR: "can't be read or written: the disk failed, or is full",
}
_PRIMARY_CODE = 0xFF
"""Of SQLite's result codes; the bits above say more of the same."""
_RETRY_S = 0.01
"""Between attempts to open a file that others open."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Connection:
    """See `records.Connection`."""

    database: sqlite3.Connection
    table: str = "records"
    limit: str = "LIMIT :limit"

    def fetch(self, statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """Return all rows that a query finds."""
        return self.database.execute(statement, values).fetchall()

    def run(self, statement: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Execute a statement for each of these rows."""
        self.database.executemany(statement, rows)


class SqliteDatabase:
    """One file; see `records.Database`."""

    def __init__(
        self,
        file: Path,
        *,
        max_bytes: int | None = None,
        wait_s: float = 5.0,
        must_exist: bool = False,
    ) -> None:
        """Name a file.

        Args:
            file: Made when it is needed, with its folder; both are private.
            max_bytes: Most bytes of it; None: as many as the disk has.
            wait_s: Seconds to wait for other processes.
            must_exist: Whether a file that is not there is an error, and not made.
        """
        self._file = file
        self._max_bytes = max_bytes
        self._wait_s = wait_s
        self._must_exist = must_exist
        self._database: sqlite3.Connection | None = None

    def write(self, work: Callable[[Records], T]) -> T:
        """Do some work, all of it or nothing; at the end it is on the disk."""
        with self._opened() as database, _transaction(database):
            return work(Records(_Connection(database)))

    def read(self, work: Callable[[Records], T]) -> T:
        """Do some work that only reads."""
        with self._opened() as database:
            return work(Records(_Connection(database)))

    def check(self) -> None:
        """Look whether all of it can be read.

        Raises:
            FeedbackStoreError: It is damaged.
        """
        with self._opened() as database:
            (state,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise FeedbackStoreError(f"the feedback store {_DAMAGED}")

    def erase(self) -> bool:
        """Empty the write-ahead log; return whether nobody still reads what it held."""
        with self._opened() as database:
            (is_busy, *_) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not is_busy

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        if self._database is not None:
            with suppress(sqlite3.Error):
                self._database.close()
            self._database = None

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Give the connection, and tell its errors; after one it is opened anew.

        Yields:
            The connection.

        Raises:
            FeedbackStoreError: The file can't be used.
        """
        try:
            if self._database is None:
                self._database = self._open()
            yield self._database
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise FeedbackStoreError(f"the feedback store {reason_in_words(error)}") from error

    def _open(self) -> sqlite3.Connection:
        folder = self._file.parent
        is_new = not self._file.exists()
        if is_new and self._must_exist:
            raise FeedbackStoreError(
                f"{str(folder)!r} holds no feedback ({self._file.name}); name the folder that "
                "LONGTAIL_FEEDBACK names"
            )
        if is_new:
            make_private_folder(folder)
            make_private_file(self._file)  # SQLite gives its other files the same permissions
        database = self._connect()
        if is_new:
            sync_folder(folder)
            sync_folder(folder.resolve().parent)
        return database

    def _connect(self) -> sqlite3.Connection:
        """Open it, again and again while others do so.

        Of two that switch to write-ahead mode SQLite refuses one at once, whatever it may wait.
        """
        deadline = monotonic() + self._wait_s
        while True:
            database = sqlite3.connect(self._file, timeout=self._wait_s, isolation_level=None)
            try:
                self._prepare(database)
            except BaseException as error:
                database.close()
                if _code_of(error) != sqlite3.SQLITE_BUSY or monotonic() >= deadline:
                    raise
                sleep(_RETRY_S)
            else:
                return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        with _transaction(database, "BEGIN"):  # another process may make the table meanwhile
            (application,) = database.execute("PRAGMA application_id").fetchone()
            (schema,) = database.execute("PRAGMA user_version").fetchone()
            (num_tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if num_tables and application != _APPLICATION_ID:
            raise FeedbackStoreError(
                f"{self._file.name} is the database of another program; choose another folder"
            )
        if schema != _SCHEMA:
            raise FeedbackStoreError(other_schema(schema, _SCHEMA))
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
def _transaction(database: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Do all or nothing; at the end it is on the disk. All that is read is of one moment."""
    database.execute(begin)
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite may have done it by itself
            database.execute("ROLLBACK")
        raise


def other_schema(found: int, expected: int) -> str:
    """Return what is said of a store whose tables another Longtail made."""
    return (
        f"the feedback store has tables of version {found}, and this Longtail uses version "
        f"{expected}; export it with the Longtail that wrote it, and import that into a new store"
    )


def _code_of(error: BaseException) -> int:
    """Return SQLite's primary result code; 0: none."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE


def reason_in_words(error: sqlite3.Error | OSError) -> str:
    """Return what is wrong with a file, as the end of a sentence about the store."""
    if isinstance(error, OSError):
        return f"can't be used: {reason_of(error)}"
    return _REASONS.get(_code_of(error), f"can't be used ({error}); look at its files")
