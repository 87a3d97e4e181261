"""What is told of a database that fails: to clients a reason, to operators the driver's words."""

from __future__ import annotations

import sqlite3
from urllib.parse import quote, quote_plus

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from longtail.service.feedback.sql_dialects import SLOW_S
from longtail.service.feedback.sqlite import LOCKED, reason_in_words

_MAX_CHARACTERS = 500
_UNREACHABLE = (
    "can't be reached: its database is not running, or is starting or stopping; try again later"
)
_REFUSED = "can't be opened: its database refuses the user or the password; correct them"
_MISSING = "can't be opened: there is no such database; make it first"
_FULL = "is full: no space is left for its database; free some"
_READ_ONLY = (
    "can't be written to: its database is read-only, or the user may not write to it; name others"
)
_DAMAGED = "is damaged: its database can't be read; restore a backup or an export of the feedback"
_TABLES = "lost its tables, or they are not those of Longtail; name another database, or schema"
_NOT_CONNECTED = (
    "can't be reached, or its server refuses the user, the password or the name of the database; "
    "correct the URL, or start the server"
)
_LOOK = "look at the logs of this program and of the database"
_REASONS: dict[str | int, str] = {
    # SQLSTATE
    "08": _UNREACHABLE,
    "22P05": "can't be written to: its database has an encoding other than UTF-8; use one in UTF-8",
    "25006": _READ_ONLY,
    "28": _REFUSED,
    "3D000": _MISSING,
    "40": LOCKED,
    "42501": _READ_ONLY,
    "42": _TABLES,
    "53100": _FULL,
    "53300": "can't be reached: its database has too many connections; close some, or allow more",
    "53": "can't be used: its database has too little memory, or too much to do; try later",
    "55P03": LOCKED,
    "57014": f"is too slow: its database took more than {SLOW_S} s; look what keeps it busy",
    "57P": _UNREACHABLE,
    "XX": _DAMAGED,
    # MySQL and MariaDB
    1021: _FULL,
    1044: _READ_ONLY,
    1045: _REFUSED,
    1049: _MISSING,
    1054: _TABLES,
    1114: _FULL,
    1142: _READ_ONLY,
    1146: _TABLES,
    1205: LOCKED,
    1213: LOCKED,
    1290: _READ_ONLY,
    2002: _UNREACHABLE,
    2003: _UNREACHABLE,
    2006: _UNREACHABLE,
    2013: _UNREACHABLE,
}
_PASSING = ("40001", "40P01", 1213)
"""Deadlocks and conflicts with other transactions."""


def is_worth_a_retry(error: SQLAlchemyError) -> bool:
    """Whether the same may succeed at once: over a new connection, or after somebody else."""
    if not isinstance(error, DBAPIError):
        return False
    is_taken = isinstance(error, IntegrityError)  # by a writer that takes no lock
    return error.connection_invalidated or is_taken or _code_of(error) in _PASSING


def words_of(error: SQLAlchemyError) -> str:
    """Return what is wrong, as the end of a sentence about the store; nothing of texts or names."""
    if not isinstance(error, DBAPIError):
        return f"can't be used ({type(error).__name__}); {_LOOK}"
    if isinstance(error.orig, sqlite3.Error):
        return reason_in_words(error.orig)
    code = _code_of(error)
    if isinstance(code, str):
        found = [code[:length] for length in (5, 3, 2) if code[:length] in _REASONS]
        code = found[0] if found else code
    if code is not None and code in _REASONS:
        return _REASONS[code]
    if error.connection_invalidated:
        return _UNREACHABLE
    if code is None and error.statement is None:
        return _NOT_CONNECTED
    return f"can't be used ({type(error.orig).__name__}, code {code}); {_LOOK}"


def driver_says(error: SQLAlchemyError, url: URL) -> str:
    """Return the driver's first line, for operators; without the password."""
    cause = getattr(error, "orig", None) or error
    line = next(iter(str(cause).splitlines()), "")
    secrets = [url.password or "", *_values(url)]
    for secret in sorted(filter(None, map(str, secrets)), key=len, reverse=True):
        for written in {secret, quote(secret), quote(secret, safe=""), quote_plus(secret)}:
            line = line.replace(written, "***")
    return f"the driver says: {line[:_MAX_CHARACTERS]}"


def _values(url: URL) -> list[str]:
    """Return the values of a URL's query that may be secrets."""
    return [
        value if isinstance(value, str) else " ".join(value)
        for name, value in url.query.items()
        if "pass" in name.lower() or "key" in name.lower() or "token" in name.lower()
    ]


def _code_of(error: DBAPIError) -> str | int | None:
    """Return the SQLSTATE, or the number of an error of MySQL; None where there is neither."""
    cause = error.orig
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    if isinstance(state, str):
        return state
    first = cause.args[0] if cause is not None and cause.args else None
    return first if isinstance(first, int) else None
