"""Errors of Longtail, and checks of the arguments of Python functions.

Each message says where, what came, what was expected and what to do.
"""

from __future__ import annotations

from numbers import Integral


class LongtailError(Exception):
    """Base of every error that a user can cause or mend."""


class BundleError(LongtailError):
    """A bundle or registry can't be used as it is on disk."""


class BundleNotFoundError(BundleError):
    """No bundle where one was asked for."""


class BundleVersionError(BundleError):
    """The bundle's format is not one that this release reads."""


class BundleCorruptError(BundleError):
    """A file of the bundle is missing, changed, or not what the manifest says."""


class DataError(LongtailError):
    """Documents or labels can't be read as given."""


class FileContentError(DataError, ValueError):
    """A file of Longtail's own is not as it was written."""


class ConfigError(LongtailError):
    """A setting or a run configuration is wrong or contradicts another."""


class RequestError(LongtailError):
    """A query asks for something that can't be answered as asked."""


class LabelNotFoundError(LongtailError):
    """No label has the id that was asked for."""


class OverloadedError(LongtailError):
    """More work is waiting than is allowed to wait."""


class NotReadyError(LongtailError):
    """No model is loaded yet, or the service is stopping."""


class PromotionRefusedError(LongtailError):
    """A candidate does not take the place of the current version."""


_MAX_SHOWN_CHARACTERS = 40


def check_count(name: str, value: object, error: type[LongtailError] = RequestError) -> None:
    """Refuse a value that is no whole number from 1; True and False are refused."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 1:
        raise error(f"{name} is {_shown(value)}; expected a whole number from 1")


def count_of(number: int, one: str, several: str = "") -> str:
    """Return how many there are of something: "1 line", "2,345 lines", "2 labels contain"."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def ignore(*_: object) -> None:
    """Do nothing: the callback of callers that want none."""


def _shown(value: object) -> str:
    return repr(value)[:_MAX_SHOWN_CHARACTERS]
