"""Numbers that callers of Python functions give, where anything can be given, and no callback."""

from __future__ import annotations

from numbers import Integral

from longtail.models.errors import LongtailError, RequestError

_MAX_SHOWN_CHARACTERS = 40


def check_count(name: str, value: object, error: type[LongtailError] = RequestError) -> None:
    """Refuse what is no whole number from 1; True and False are none.

    Args:
        name: Of the argument.
        value: What was given.
        error: What is raised.

    Raises:
        LongtailError: It is none.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
        raise error(f"{name} is {_shown(value)}; expected a whole number from 1")


def ignore(*_: object) -> None:
    """Do nothing: the callback of callers that want none."""


def _shown(value: object) -> str:
    return repr(value)[:_MAX_SHOWN_CHARACTERS]
