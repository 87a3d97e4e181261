"""What the named fields of a row hold: checked, or refused with the bare reason."""

from __future__ import annotations

import reprlib

from longtail.models.errors import DataError
from longtail.models.files.rows import Fields

NUL = "\0"


def string_of(fields: Fields, name: str) -> str:
    """Return a field that holds a string; empty where it is missing or null.

    Raises:
        DataError: It holds something else, or half of a surrogate pair or NUL.
    """
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{name} is {shown(value)}; expected a string")
    check_characters(name, value)
    return value


def id_of(fields: Fields, name: str) -> str:
    """Return a field that holds an identifier, a string or a whole number; trimmed.

    Raises:
        DataError: It holds something else, or half of a surrogate pair or NUL.
    """
    value = fields.get(name)
    return str(value) if type(value) is int else string_of(fields, name).strip()


def check_characters(name: str, value: str) -> None:
    """Refuse half of a surrogate pair, which JSON can spell and no file takes, and NUL.

    The service refuses NUL, too; other control characters are text.

    Raises:
        DataError: There is one.
    """
    if NUL in value:
        raise DataError(f"{name} holds a NUL character at position {value.index(NUL)}; remove it")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{name} holds {value[error.start]!r}, half of a surrogate pair; expected Unicode text"
        ) from error


def shown(value: object) -> str:
    """Return a value and its type, shortened, for a message."""
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def present(fields: Fields) -> str:
    """Return the names of the fields that there are, for a message."""
    return f"the line has {', '.join(map(reprlib.repr, fields)) or 'no fields'}"
