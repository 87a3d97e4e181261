"""A file of SQLite in write-ahead mode, over the standard library alone.

A transaction is on the disk when it ends (`synchronous=FULL`), so a process may be killed at any
byte. Deleting overwrites (`secure_delete`) and empties the write-ahead log.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

from longtail.models.files.durable import make_private_file, make_private_folder
from longtail.models.files.failures import reason_of
from longtail.models.platform import sync_folder
from longtail.service.errors import FeedbackStoreError

logger = logging.getLogger(__name__)

FILE_NAME = "feedback.sqlite3"
_LOG = "-wal"
_FILE_ENDS = ("", _LOG, "-shm")
"""The files of one database: its pages, its write-ahead log, the index of that."""
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
_MOVED = (
    "the feedback store was moved or replaced while it was written; send it again with the same ids"
)
_LOG_ALONE = (
    f"the feedback store has a write-ahead log (*{_LOG}) without its database, and entries may be "
    "in it that are nowhere else; move it beside its database, or put that back"
)
_LOCKED = "is locked by another process; try again when that has ended"
_UNREACHABLE = "can't be opened or written to; check its folder and the permissions"
_REASONS = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CANTOPEN: _UNREACHABLE,
    sqlite3.SQLITE_READONLY: _UNREACHABLE,
    sqlite3.SQLITE_PERM: _UNREACHABLE,
    sqlite3.SQLITE_IOERR: "can't be read or written: the disk failed, or is full",
}
_PRIMARY_CODE = 0xFF
"""Bits of SQLite's primary result codes; the bits above say more of the same."""
_RETRY_S = 0.01
"""Between attempts to open a file that others open."""
_MAX_WRITES = 3
"""Attempts of one transaction while the files are moved away under it."""

T = TypeVar("T")
_Identities = tuple[tuple[int, int] | None, ...]
"""Device and inode of each file; None: there is no such file."""


class SqliteDatabase:
    """One file, of one thread. It is opened at its first use, and after failures.

    SQLite goes on with the files it has opened, wherever they are moved. So the files at the path
    are compared with the open ones before each use and after each transaction. Where they differ,
    the path is opened again and the transaction is repeated: what is acknowledged is at the path.
    """

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
        self._identities: _Identities = ()

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work, all of it or nothing; at the end it is on the disk.

        No other process writes meanwhile, so records become visible in their order.

        The work is repeated where the files were moved away before its transaction ended.
        """
        for _ in range(_MAX_WRITES):
            with self._opened() as database:
                with _transaction(database):
                    result = work(database)
                if self._is_in_place():
                    return result
        raise FeedbackStoreError(_MOVED)

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work that only reads."""
        with self._opened() as database:
            return work(database)

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
        """Give the connection to the files at the path; after an error they are opened again.

        Yields:
            The connection.
        """
        try:
            if self._database is not None and not self._is_in_place():
                logger.warning("the files of the feedback store were moved; opening the path again")
                self.close()
            if self._database is None:
                self._database = self._open()
            yield self._database
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise FeedbackStoreError(f"the feedback store {_reason_in_words(error)}") from error

    def _open(self) -> sqlite3.Connection:
        is_new = not self._file.exists()
        if is_new:
            self._make_file()
        before = self._found()
        database = self._connect()
        self._identities = self._found()
        if before[0] not in (None, self._identities[0]):
            database.close()
            raise FeedbackStoreError(_MOVED)
        if is_new:
            sync_folder(self._file.parent)
            sync_folder(self._file.parent.resolve().parent)
        return database

    def _make_file(self) -> None:
        folder = self._file.parent
        if self._must_exist:
            raise FeedbackStoreError(
                f"{str(folder)!r} holds no feedback ({self._file.name}); name the folder that "
                "LONGTAIL_FEEDBACK names"
            )
        if self._path(_LOG).exists():  # SQLite would delete it
            raise FeedbackStoreError(_LOG_ALONE)
        make_private_folder(folder)
        make_private_file(self._file)  # SQLite gives its other files the same permissions

    def _path(self, end: str) -> Path:
        return self._file.with_name(self._file.name + end)

    def _is_in_place(self) -> bool:
        return self._found() == self._identities

    def _found(self) -> _Identities:
        return tuple(_identity(self._path(end)) for end in _FILE_ENDS)

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
            raise FeedbackStoreError(
                f"the feedback store has tables of version {schema}, and this Longtail uses "
                f"version {_SCHEMA}; export it with the Longtail that wrote it, and import that "
                "into a new store"
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


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode, which no other file has while this one is open."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _code_of(error: BaseException) -> int:
    """Return SQLite's primary result code; 0: none."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE


def _reason_in_words(error: sqlite3.Error | OSError) -> str:
    if isinstance(error, OSError):
        return f"can't be used: {reason_of(error)}"
    return _REASONS.get(_code_of(error), f"can't be used ({error}); look at its files")
