"""Places that a person names: a path, or a URL, which may hold a password that nobody may see."""

from __future__ import annotations

import re

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PLAIN_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)"
    r"(?P<user>[^/?#@]*@)?"
    r"(?P<rest>(?:[\w.-]*|\[[0-9A-Fa-f:.]*\])(?::\d{1,5})?(?:/[\w./%-]*)?)"
    r"(?:\?[^@]*)?"
)


def is_url(place: object) -> bool:
    """Whether a place is a URL, and no path."""
    return isinstance(place, str) and _URL.match(place) is not None


def without_secrets(place: str) -> str:
    """Return a place as it may be shown: a URL without its user, its password and its query.

    Of a URL that does not say clearly where its password ends, only the scheme is left.
    """
    if not is_url(place):
        return place
    found = _PLAIN_URL.fullmatch(place)
    if found is None:
        return place.partition("://")[0] + "://***"
    return found["scheme"] + ("***@" if found["user"] else "") + found["rest"]
