"""The commands and their options, by Typer's own generator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from typer.cli import get_docs_for_click

import longtail
from longtail.service.commands.predict import predict_command


def render() -> str:
    """Return the part of the page: each command."""
    whole = whole_command()
    context = whole.context_class(whole, info_name="longtail")
    listed = get_docs_for_click(obj=whole, ctx=context, name="longtail")
    listed = re.sub(r"^#", "##", listed, flags=re.MULTILINE).replace("```console\n$ ", "```sh\n")
    return listed.strip()


def whole_command() -> Any:
    """Return the command; `predict` has its options, which are made when it is called."""
    whole: Any = typer.main.get_command(longtail.app)
    whole.commands["predict"] = typer.main.get_command(predict_command())
    whole.commands["predict"].name = "predict"
    return whole


def commands_of(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands below one, each with its full name."""
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    for child in command.list_commands(None):
        yield from commands_of(command.get_command(None, child), f"{name} {child}")
