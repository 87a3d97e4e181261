"""What kinds of databases differ in, and the connection to one that a URL names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

from sqlalchemy import URL, Engine, QueuePool, create_engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from longtail.models.errors import ConfigError
from longtail.models.files.urls import without_secrets

SLOW_S = 30
"""Seconds after which a statement, or a silent network, is given up."""
_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
"""Of URLs that name none; SQLAlchemy's own default depends on its version."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs from other databases.

    Attributes:
        isolation: Of transactions; None: as the database has it.
        begin: Statement at the begin of each transaction, for waits that end and commits that are
            on the disk. `:wait` and `:slow` are seconds; empty: none.
        limit: The clause that gives the first `:limit` rows.
        encoding: Query for the encoding of texts, which must be UTF8; empty: it always is.
    """

    isolation: str | None = None
    begin: str = ""
    limit: str = "LIMIT :limit"
    encoding: str = ""


_MYSQL = Dialect("READ COMMITTED", "SET SESSION innodb_lock_wait_timeout = :wait")
_DIALECTS = {
    "postgresql": Dialect(
        "READ COMMITTED",
        "SELECT set_config('lock_timeout', CAST(:wait AS text) || 's', true), "
        "set_config('statement_timeout', CAST(:slow AS text) || 's', true), "
        "set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
        "WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)",
        encoding="SHOW server_encoding",
    ),
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "oracle": Dialect("READ COMMITTED", limit="FETCH FIRST :limit ROWS ONLY"),
    "mssql": Dialect("READ COMMITTED", limit="OFFSET 0 ROWS FETCH NEXT :limit ROWS ONLY"),
}
_LIBPQ: Mapping[str, int | str] = {
    "tcp_user_timeout": 1000 * SLOW_S,
    "keepalives_idle": SLOW_S,
    "fallback_application_name": "longtail",
}
_MYSQL_CLIENT = {"read_timeout": SLOW_S, "write_timeout": SLOW_S}
_ARGUMENTS: Mapping[str, Callable[[int], Mapping[str, int | str]]] = {
    "psycopg": lambda wait: {"connect_timeout": wait, **_LIBPQ},
    "psycopg2": lambda wait: {"connect_timeout": wait, **_LIBPQ},
    "pymysql": lambda wait: {"connect_timeout": wait, **_MYSQL_CLIENT},
    "mysqldb": lambda wait: {"connect_timeout": wait, **_MYSQL_CLIENT},
    "pysqlite": lambda wait: {"timeout": wait},
}
"""Arguments of drivers, by the seconds to wait; those that a URL names win."""


def dialect_of(engine: Engine) -> Dialect:
    """Return what is particular of a database."""
    return _DIALECTS.get(engine.dialect.name, Dialect())


def make_engine(url: str, wait_s: float) -> Engine:
    """Return what connects to a database, at its first use; it holds one connection at most.

    Args:
        url: As SQLAlchemy reads it.
        wait_s: Seconds to wait for a connection.

    Raises:
        ConfigError: The URL can't be read, or its driver is missing.
    """
    shown = without_secrets(url)
    try:
        parsed = make_url(url)
        parsed = parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
        _check_usable(parsed, shown)
        return create_engine(
            parsed,
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            hide_parameters=True,  # in errors: they hold texts
            connect_args=_arguments(parsed, ceil(wait_s)),
            **_isolation(parsed),
        )
    except NoSuchModuleError:
        raise ConfigError(
            f"feedback: {shown!r} names a kind of database that SQLAlchemy does not know; expected "
            "one such as postgresql+psycopg://, or install its dialect"
        ) from None
    except ImportError as missing:
        raise ConfigError(
            f"feedback: {shown!r} needs the driver {missing.name!r}, which can't be imported; "
            "install it, or name another one, as in mysql+pymysql://"
        ) from None
    except (ArgumentError, ValueError):  # whose message may hold the password
        raise ConfigError(
            f"feedback: {shown!r} can't be read as a URL; expected "
            "DIALECT+DRIVER://USER:PASSWORD@HOST:PORT/DATABASE, with other signs than letters and "
            "digits of the password as %XX"
        ) from None


def _isolation(url: URL) -> dict[str, str]:
    dialect = _DIALECTS.get(url.get_backend_name(), Dialect())
    return {} if dialect.isolation is None else {"isolation_level": dialect.isolation}


def _arguments(url: URL, wait_s: int) -> dict[str, int | str]:
    by_driver = _ARGUMENTS.get(url.get_driver_name())
    arguments = {} if by_driver is None else by_driver(wait_s)
    return {name: value for name, value in arguments.items() if name not in url.query}


def _check_usable(url: URL, shown: str) -> None:
    """Refuse what works, but not as a store.

    Raises:
        ConfigError: The driver needs an event loop, or the database is in memory.
    """
    if url.get_dialect().is_async:
        raise ConfigError(
            f"feedback: {shown!r} names a driver for asyncio; expected another one, such as "
            "postgresql+psycopg:// or mysql+pymysql://"
        )
    if url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}:
        raise ConfigError(
            f"feedback: {shown!r} is a database in memory, which keeps nothing; name a file"
        )
