"""A database that SQLAlchemy knows by its URL.

Whoever writes first takes the lock of the one row of `longtail_feedback_store`, in however many
processes. So ids are looked up and taken without a race, and records become visible in the order of
their sequence numbers, which readers of pages rely on. Many entries share a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any, TypeVar

import sqlalchemy
from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, Unicode, UnicodeText
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from longtail.models.files.urls import without_secrets
from longtail.service.errors import FeedbackStoreError
from longtail.service.feedback.records import Records
from longtail.service.feedback.sql_dialects import SLOW_S, dialect_of, make_engine
from longtail.service.feedback.sql_failures import driver_says, is_worth_a_retry, words_of
from longtail.service.feedback.sqlite import other_schema

_SCHEMA = 1
"""Version of the tables below."""
_MYSQL = ("mysql", "mariadb")
_TABLE_OPTIONS = {
    f"{name}_{option}": value
    for name in _MYSQL
    for option, value in (("engine", "InnoDB"), ("charset", "utf8mb4"))
}
_ID_CHARACTERS = 200
_METADATA = MetaData()
_STORE = Table(
    "longtail_feedback_store",
    _METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("schema_version", Integer, nullable=False),
    Column("num_writes", BigInteger, nullable=False),
    **_TABLE_OPTIONS,
)
"""Of one row."""
_RECORDS = Table(
    "longtail_feedback",
    _METADATA,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column(
        "id",
        # Ids are compared character by character, and not as a language sorts them.
        Unicode(_ID_CHARACTERS)
        .with_variant(Unicode(_ID_CHARACTERS, collation="C"), "postgresql")
        .with_variant(Unicode(_ID_CHARACTERS, collation="Latin1_General_100_BIN2"), "mssql")
        .with_variant(sqlalchemy.VARBINARY(4 * _ID_CHARACTERS), *_MYSQL),
        nullable=False,
        unique=True,
    ),
    Column("digest", String(64)),
    Column(
        "content",
        UnicodeText().with_variant(UnicodeText(2**32 - 1), *_MYSQL),
        nullable=False,
    ),
    **_TABLE_OPTIONS,
)
_LOCK = "UPDATE longtail_feedback_store SET num_writes = num_writes + 1"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Connection:
    """See `records.Connection`."""

    connection: sqlalchemy.Connection
    limit: str
    table: str = _RECORDS.name

    def fetch(self, statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """Return all rows that a query finds."""
        found = self.connection.execute(sqlalchemy.text(statement), values)
        return [tuple(map(_decoded, row)) for row in found]

    def run(self, statement: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Execute a statement for each of these rows."""
        self.connection.execute(sqlalchemy.text(statement), rows)


class SqlDatabase:
    """One database; see `records.Database`. At most one connection is open."""

    def __init__(self, url: str, *, wait_s: float = 5.0, must_exist: bool = False) -> None:
        """Name a database.

        Args:
            url: As SQLAlchemy reads it.
            wait_s: Seconds to wait for a connection, and for other processes.
            must_exist: Whether tables that are not there are an error, and not made.

        Raises:
            ConfigError: The URL can't be used, or what it needs is not installed.
        """
        self._shown = without_secrets(url)
        self._engine = make_engine(url, wait_s)
        self._dialect = dialect_of(self._engine)
        self._times = {"wait": ceil(wait_s), "slow": SLOW_S}
        self._must_exist = must_exist
        self._is_prepared = False

    def write(self, work: Callable[[Records], T]) -> T:
        """Do some work, all of it or nothing; at the end it is on the disk."""
        return self._told(work, locks=True)

    def read(self, work: Callable[[Records], T]) -> T:
        """Do some work that only reads."""
        return self._told(work, locks=False)

    def check(self) -> None:
        """Look whether the tables are there; the database looks after what they hold."""
        self.read(lambda _: None)

    def erase(self) -> bool:
        """Leave it to the database, which overwrites what was deleted when it needs the space."""
        return True

    def close(self) -> None:
        """Let go of the connection; the next use opens another one."""
        self._engine.dispose()
        self._is_prepared = False

    def _told(self, work: Callable[[Records], T], *, locks: bool, may_retry: bool = True) -> T:
        """Do some work, once more where that may help, and tell its errors.

        Raises:
            FeedbackStoreError: It was not done; or, where a connection was lost, perhaps it was.
        """
        try:
            return self._done(work, locks=locks)
        except SQLAlchemyError as error:
            self.close()
            if may_retry and is_worth_a_retry(error):
                return self._told(work, locks=locks, may_retry=False)
            told = FeedbackStoreError(f"the feedback store {words_of(error)}")
            told.add_note(driver_says(error, self._engine.url))
            raise told from None  # the cause may hold the password

    def _done(self, work: Callable[[Records], T], *, locks: bool) -> T:
        with self._engine.connect() as connection:
            if not self._is_prepared:
                self._prepare(connection)
                self._is_prepared = True
            with self._begun(connection):
                if locks:
                    connection.execute(sqlalchemy.text(_LOCK))
                return work(Records(_Connection(connection, self._dialect.limit)))

    @contextmanager
    def _begun(self, connection: sqlalchemy.Connection) -> Iterator[None]:
        """Keep a transaction open, whose waits end.

        Yields:
            Nothing.
        """
        with connection.begin():
            if self._dialect.begin:
                connection.execute(sqlalchemy.text(self._dialect.begin), self._times)
            yield

    def _prepare(self, connection: sqlalchemy.Connection) -> None:
        """Make the tables, unless they are there.

        Raises:
            DBAPIError: The connection is lost, or they can't be made.
        """
        try:
            self._make_tables(connection)
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            self._make_tables(connection)  # another process may have made them meanwhile

    def _make_tables(self, connection: sqlalchemy.Connection) -> None:
        """Make those that are missing.

        Raises:
            FeedbackStoreError: They are missing and must not be, or are those of another Longtail.
        """
        with self._begun(connection):
            if self._must_exist and not sqlalchemy.inspect(connection).has_table(_STORE.name):
                raise FeedbackStoreError(
                    f"{self._shown!r} holds no feedback (table {_STORE.name}); name the database "
                    "that LONGTAIL_FEEDBACK names"
                )
            self._check_encoding(connection)
            _METADATA.create_all(connection)
            found = connection.execute(sqlalchemy.select(_STORE.c.schema_version)).scalars().all()
            if not found:
                row = {"id": 1, "schema_version": _SCHEMA, "num_writes": 0}
                connection.execute(_STORE.insert(), row)
            elif found != [_SCHEMA]:
                raise FeedbackStoreError(other_schema(found[0], _SCHEMA))

    def _check_encoding(self, connection: sqlalchemy.Connection) -> None:
        """Refuse a database that has no place for some texts.

        Raises:
            FeedbackStoreError: It is one.
        """
        if not self._dialect.encoding:
            return
        encoding = connection.execute(sqlalchemy.text(self._dialect.encoding)).scalar_one()
        if encoding != "UTF8":
            raise FeedbackStoreError(
                f"the feedback store can't be used: its database has the encoding {encoding}; "
                "make one with the encoding UTF8"
            )


def _decoded(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value
