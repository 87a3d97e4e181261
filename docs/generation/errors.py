"""The problem documents of the service and the exceptions of the packages, from their classes."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import longtail.models.errors
import longtail.service
import longtail.service.errors
from docs.generation.markdown import sentence, table
from longtail.models.errors import LongtailError
from longtail.service.wire.problems import OVERLOADED, Kind

_NOTES = {
    "unauthorized": "the request brings no key, or an unknown one",
    "admin-off": "the service has no admin key",
    "model-change": "`detail` says why; what was served before still is",
    "feedback-off": "set `LONGTAIL_FEEDBACK` to a folder",
    "feedback-conflict": "send other content with a new id; a deleted id stays taken",
    "feedback-store": "full, locked, damaged or not reached: `detail` says which; predictions go on",
    "model-not-found": "`detail` says which versions are loaded",
    "body-timeout": "raise `LONGTAIL_READ_TIMEOUT_S`, or send faster",
    "body-too-large": "see `LONGTAIL_MAX_BODY_BYTES`",
    "bad-host": "without `Host`, or with two",
    "other-host": "name the host in `LONGTAIL_ALLOWED_HOSTS`",
    "upgrade-with-body": "the connection is closed",
    "head-too-large": "64 KiB and 200 fields at most; the connection is closed",
    "not-http": "or trailers, chunk extensions or pipelined requests without end; the connection is closed",
    "transfer-coding": "`chunked` alone is read; the connection is closed",
    "line-too-long": "in `longtail predict` only: a line has more than 16 MiB",
    "client-gone": "never received; seen in the metrics (`4xx`) and the log only",
    "invalid-body": "a field is missing, unknown or out of bounds",
    "too-many-elements": "300,000 list items at most, a field counts as ten: send fewer at a time",
    "request": "a limit of the service, or something that the model can't do",
    "overloaded": "`Retry-After` follows from what waits, up to a minute: see [load](../explanation/load.md)",
    "deadline": "no answer within `timeout_s`",
    "model": "the bundle is damaged: roll back",
    "internal": "a bug; the cause is in the log only",
    "not-ready": "no model is loaded yet, or loading failed",
}

_ABOUT = "All are of one tree, `longtail.models.errors.LongtailError`; each message is one sentence that says what to do."


def render() -> str:
    """Return the part of the page."""
    kinds = {kind.slug: kind for module in _modules(longtail.service) for kind in _kinds(module)}
    rows = [
        (f"`{slug}`", str(kind.status), kind.title, _NOTES.get(slug, ""), _wait(kind))
        for slug, kind in sorted(kinds.items(), key=lambda item: (item[1].status, item[0]))
    ]
    problems = table(("name", "status", "title", "note", "`Retry-After`, s"), rows)
    exceptions = table(("exception", "is a", "raised when"), _exceptions())
    return f"{problems}\n\n## Exceptions in Python\n\n{_ABOUT}\n\n{exceptions}"


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


def _kinds(module: ModuleType) -> Iterator[Kind]:
    """Yield the kinds of problem that are in a module, by themselves or in a table."""
    for value in vars(module).values():
        for item in value.values() if isinstance(value, dict) else (value,):
            if isinstance(item, Kind):
                yield item


def _exceptions() -> Iterator[tuple[str, str, str]]:
    for module in (longtail.models.errors, longtail.service.errors):
        for name, value in vars(module).items():
            is_own = inspect.isclass(value) and value.__module__ == module.__name__
            if is_own and issubclass(value, LongtailError):
                bases = ", ".join(f"`{base.__name__}`" for base in value.__bases__)
                yield f"`{module.__name__}.{name}`", bases, sentence(value.__doc__)


def _wait(kind: Kind) -> str:
    if kind is OVERLOADED:
        return f"{kind.retry_after_s} or more"
    return "" if kind.retry_after_s is None else str(kind.retry_after_s)
