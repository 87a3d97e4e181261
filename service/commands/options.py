"""Options that several commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

RegistryOption = Annotated[
    Path, typer.Option("--registry", envvar="LONGTAIL_REGISTRY", help="Folder of the registry.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
VersionArgument = Annotated[str, typer.Argument(help="A version's number, or 'current'.")]
NumberArgument = Annotated[int, typer.Argument(min=1, help="A version's number.")]
TextColumnsOption = Annotated[
    str | None,
    typer.Option(
        help="Columns (or fields) of the text, between commas, joined in this order.",
        show_default="text, or title and content",
    ),
]
IdColumnOption = Annotated[
    str | None, typer.Option(help="Column (or field) of the id.", show_default="id")
]
DeviceOption = Annotated[
    str | None, typer.Option(help="cpu or cuda (the first GPU).", show_default="automatic")
]
ThreadsOption = Annotated[
    int | None, typer.Option(min=1, help="Threads for computing.", show_default="automatic")
]
DEFAULT_REGISTRY = Path("registry")


def print_json(content: object) -> None:
    """Print an answer for programs on stdout."""
    print(json.dumps(content, indent=2, ensure_ascii=False))
