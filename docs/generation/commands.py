"""The commands and their options, by Typer's own generator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from typer.cli import get_docs_for_click

import longtail


def render() -> str:
    """Return the part of the page: each command."""
    whole = typer.main.get_command(longtail.app)
    context = whole.context_class(whole, info_name="longtail")
    listed = get_docs_for_click(obj=whole, ctx=context, name="longtail")
    listed = re.sub(r"^#", "##", listed, flags=re.MULTILINE).replace("```console\n$ ", "```sh\n")
    return listed.strip()


def commands_of(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands below one, each with its full name."""
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    for child in command.list_commands(None):
        yield from commands_of(command.get_command(None, child), f"{name} {child}")
