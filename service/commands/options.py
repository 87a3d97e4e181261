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
DEFAULT_REGISTRY = Path("registry")


def print_json(content: object) -> None:
    """Print an answer for programs on stdout."""
    print(json.dumps(content, indent=2, ensure_ascii=False))
