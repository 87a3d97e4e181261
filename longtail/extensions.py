"""Extensions: optional features, each an object in a folder that can be deleted.

The built-in ones are the folders `longtail/ext/NAME`; a package from outside names its own by an
entry point in the group `longtail.extensions`, whose value is an `Extension`. The command and the
service iterate over all of them; nothing else knows one by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.models.errors import ConfigError

if TYPE_CHECKING:  # `longtail --help` does without them
    from importlib.metadata import EntryPoint

    from fastapi import APIRouter

BUILT_IN = ("annif", "open_inference", "mcp", "promotion", "editions", "learn", "ray")
"""The folders of `longtail/ext`, in the order of their routes; one that is absent is left out, and
one that needs `longtail.training` where that is absent, as in the image of the service."""
GROUP = "longtail.extensions"
_LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `longtail`.

    Attributes:
        name: Its name.
        function: What Typer calls.
        group: The group that it joins, such as "vocabulary"; empty: none.
    """

    name: str
    function: Callable[..., Any]
    group: str = ""


@dataclass(frozen=True, slots=True)
class Routes:
    """Routes of the service, which are refused while the queue is full, as `/v1/predict` is.

    Attributes:
        router: The routes.
        schemas: Returns the schemas, by name, that OpenAPI needs beside those that routes declare.
    """

    router: APIRouter
    schemas: Callable[[], Mapping[str, Any]] = dict


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths of the service that follow the rules of a protocol.

    A request that can't be used has the status 400 there; our own routes say 422.

    Attributes:
        prefix: The first part of the paths, such as "/v2".
        names_error: Whether problem documents have the member `error`, too.
        health: The health checks among them: they need no key, and are logged for debugging.
    """

    prefix: str
    names_error: bool = False
    health: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Extension:
    """An optional feature.

    Attributes:
        name: Its name; no two have the same one.
        commands: Returns its commands; called when the command line is assembled, so what it
            imports must be light.
        routes: Returns its routes; called when the service is assembled.
        paths: The rules of its paths, if it has a prefix of its own.
        engine: Takes a number of workers and returns what fits the sparse model on them, where
            `longtail train --engine` has the name of the extension (a
            `longtail.training.sparse.fit.LabelEngine`).
    """

    name: str
    commands: Callable[[], Sequence[Command]] = field(default=tuple)
    routes: Callable[[], Sequence[Routes]] = field(default=tuple)
    paths: Paths | None = None
    engine: Callable[[int], Any] | None = None


@cache
def extensions() -> tuple[Extension, ...]:
    """Return all extensions: the built-in ones that are there, then those of other packages.

    Raises:
        ConfigError: An extension of another package can't be loaded, or its name is taken.
    """
    found = [each for name in BUILT_IN if (each := _built_in(name)) is not None]
    found += map(_loaded, _entry_points())
    names = [each.name for each in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"extension {twice[0]!r}: two packages have one of this name; uninstall one of them"
        )
    return tuple(found)


def engine_named(name: str) -> Callable[[int], Any] | None:
    """Return the engine that `--engine` names (see `Extension`); None: "local", this process.

    Raises:
        ConfigError: There is none of this name.
    """
    engines = {each.name: each.engine for each in extensions() if each.engine is not None}
    if name in engines or name == _LOCAL:
        return engines.get(name)
    is_absent = name in BUILT_IN and name not in {each.name for each in extensions()}
    lack = f"; this installation lacks the extension {name!r}" if is_absent else ""
    raise ConfigError(f"--engine: got {name!r}; expected one of {(_LOCAL, *engines)}{lack}")


def _built_in(name: str) -> Extension | None:
    module = f"longtail.ext.{name}.extension"
    try:
        found: Extension = import_module(module).EXTENSION
    except ModuleNotFoundError as error:
        lacks_training = f"{error.name}.".startswith("longtail.training.")
        if not lacks_training and not f"{module}.".startswith(f"{error.name}."):
            raise
        return None
    return found


def _entry_points() -> Iterable[EntryPoint]:
    """Return those of our group.

    `importlib.metadata` takes longer to import than all files take to read, so it is imported only
    where one names the group.
    """
    files = (
        file
        for folder in sys.path
        for kind in ("dist-info", "egg-info")
        for file in Path(folder).glob(f"*.{kind}/entry_points.txt")
    )
    if not any(f"[{GROUP}]" in file.read_text("utf-8") for file in files):
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _loaded(point: EntryPoint) -> Extension:
    try:
        found = point.load()
    except Exception as error:
        raise ConfigError(
            f"extension {point.name!r}: {point.value} can't be loaded ({error}); mend or uninstall "
            "its package"
        ) from error
    if not isinstance(found, Extension):
        raise ConfigError(
            f"extension {point.name!r}: {point.value} is a {type(found).__name__}; expected a "
            "longtail.extensions.Extension"
        )
    return found
