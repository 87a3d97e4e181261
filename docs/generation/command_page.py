"""The commands and their options, from the Typer application."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import typer

import longtail
from docs.generation.docstring import attributes_of
from docs.generation.markdown import code, page, sentence, table
from longtail.models.promotion.rules import PromotionRules

_INTRODUCTION = """\
Which commands does `longtail` have, what are their options, how do they end, and what do they write?

## Exit statuses

| status | meaning |
|---|---|
| 0 | done |
| 1 | failed; the last line on stderr says what, where, why, and what to do |
| 2 | the command line can't be read: an unknown option, or a value of the wrong type |
| 130, 141, 128 + n | interrupted (Ctrl-C); the reader of the output went away; ended by signal n |

`longtail --debug ...`, or `LONGTAIL_DEBUG=1`, shows the traceback of an error.

## Files that are written

- Inputs, splits, names, and whether output and registry can be written to are checked before the work begins.
- An input is never overwritten, and only versions and the log of `promote` are written into a registry.
- An existing result is replaced only with `--overwrite`.
- A working folder (`train --work`) must be empty or hold the same work, which is then resumed. A lock keeps a second process out; it ends with the process."""


def render() -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    for name, command in commands_of(typer.main.get_command(longtail.app), "longtail"):
        parts += [f"## `{name}`", sentence(command.help), _options(name, command)]
        if name == "longtail promote":
            parts += ["### Rules", _rules()]
    return page(
        "Commands",
        "the command line (longtail/__init__.py, training/cli.py, service/cli.py)",
        *parts,
    )


def commands_of(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands below one, each with its full name."""
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    for child in command.list_commands(None):
        yield from commands_of(command.get_command(None, child), f"{name} {child}")


def _rules() -> str:
    """Return the rules of `--set RULE=VALUE`."""
    told = attributes_of(inspect.cleandoc(PromotionRules.__doc__ or ""))
    rows = [
        (f"`{rule.name}`", code(rule.default), sentence(told[rule.name]))
        for rule in fields(PromotionRules)
    ]
    return table(("rule", "default", "meaning"), rows)


def _options(name: str, command: Any) -> str:
    if name == "longtail serve":  # reads its options itself
        return "Every [setting](settings.md) is an option: `LONGTAIL_MAX_K` is `--max-k`."
    rows = [
        (_spelling(parameter), _default(parameter), getattr(parameter, "help", "") or "")
        for parameter in command.params
        if parameter.name != "help" and not getattr(parameter, "hidden", False)
    ]
    return table(("argument or option", "default", "meaning"), rows)


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`"
    return ", ".join(f"`{spelling}`" for spelling in [*parameter.opts, *parameter.secondary_opts])


def _default(parameter: Any) -> str:
    value = "required" if parameter.required else _value(parameter)
    variable = getattr(parameter, "envvar", None)
    if not variable:
        return value
    return f"`{variable}`, else {value}" if value else f"`{variable}`"


def _value(parameter: Any) -> str:
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    default = parameter.default
    if callable(default) or default is False or type(default).__name__ == "Sentinel":
        return ""
    return code(default)
