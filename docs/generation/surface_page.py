"""All that users can name: commands, options, keys, settings, routes, metrics, scorers, measures.

Every addition appears in the diff of this one page, and so in review.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import typer
from pydantic import BaseModel

import longtail
from docs.generation.command_page import commands_of
from docs.generation.configuration_page import sections_in
from docs.generation.markdown import page
from docs.generation.metric_page import metric_names
from longtail.models.names import BLENDABLE, ENSEMBLE, FAST, HYBRID
from longtail.service.app import create_app
from longtail.service.settings import PREFIX, Settings
from longtail.training.configuration.run import TrainingConfig

_INTRODUCTION = """\
Which names does Longtail promise to its users?

An addition or a removal changes this page, which a test compares with the code."""


def render() -> str:
    """Return the page."""
    whole = typer.main.get_command(longtail.app)
    commands = [*commands_of(whole, "longtail")]
    having = [("longtail", whole), *commands]
    options = [f"{name} {each}" for name, command in having for each in _options(command)]
    return page(
        "Surface",
        "the command line, the configuration, the settings, the OpenAPI document and the metrics",
        _INTRODUCTION,
        *_listed("Commands", [name for name, _ in commands]),
        *_listed("Options", options),
        *_listed("Configuration keys", [*_keys(TrainingConfig, "")]),
        *_listed("Settings", [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]),
        *_listed("Routes", [*_routes()]),
        *_listed("Metrics", [*metric_names()]),
        *_listed("Scorers", [*BLENDABLE, HYBRID, FAST, ENSEMBLE]),
    )


def _listed(title: str, names: Sequence[str]) -> tuple[str, str]:
    return f"## {title}: {len(names)}", "\n".join(["```text", *sorted(names), "```"])


def _options(command: Any) -> Iterator[str]:
    """Yield the options of a command; those of `serve` are the settings."""
    for each in getattr(command, "params", ()):
        if each.param_type_name == "option" and each.name != "help" and not each.hidden:
            yield max(each.opts, key=len)


def _keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """Yield the configuration keys that take a value; `section.key` in a section."""
    sections = dict(sections_in(model))
    for name in model.model_fields:
        if name not in sections:
            yield f"{prefix}{name}"
        else:
            found = [key for kind in sections[name] for key in _keys(kind, f"{prefix}{name}.")]
            yield from dict.fromkeys(found)


def _routes() -> Iterator[str]:
    for path, operations in create_app(Settings.model_construct()).openapi()["paths"].items():
        yield from (f"{method.upper()} {path}" for method in operations if method != "parameters")
