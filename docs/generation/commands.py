"""The commands and their options, by Typer's own generator."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import typer
from typer.cli import get_docs_for_click

import longtail
from docs.generation.markdown import code, sentence, table
from longtail.ext.promotion.rules import PromotionRules


def render() -> str:
    """Return the part of the page: each command, then the rules of `promote --set`."""
    whole = typer.main.get_command(longtail.app)
    context = whole.context_class(whole, info_name="longtail")
    listed = get_docs_for_click(obj=whole, ctx=context, name="longtail")
    listed = re.sub(r"^#", "##", listed, flags=re.MULTILINE).replace("```console\n$ ", "```sh\n")
    return f"{listed.strip()}\n\n## Rules of `longtail promote --set`\n\n{_rules()}"


def commands_of(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands below one, each with its full name."""
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    for child in command.list_commands(None):
        yield from commands_of(command.get_command(None, child), f"{name} {child}")


def _rules() -> str:
    body = inspect.cleandoc(PromotionRules.__doc__ or "").partition("Attributes:\n")[2]
    meanings = dict(re.findall(r"^    (\w+): (.+(?:\n     .+)*)", body, re.MULTILINE))
    rows = [
        (f"`{rule.name}`", code(rule.default), sentence(meanings[rule.name]))
        for rule in fields(PromotionRules)
    ]
    return table(("rule", "default", "meaning"), rows)
