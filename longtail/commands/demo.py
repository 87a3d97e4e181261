"""`longtail demo`: the command; `longtail.demo` does its work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    registry: Annotated[Path, typer.Option(help="Folder of the registry.")] = Path("registry"),
    work: Annotated[Path, typer.Option(help="Folder of the run's work.")] = Path("runs/demo"),
    port: Annotated[int, typer.Option(help="TCP port of the service.")] = 8000,
    serve: Annotated[bool, typer.Option(help="Go on serving at the end, until Ctrl-C.")] = True,
) -> None:
    """Train, serve and measure a small model, and train a better one while the first one serves."""
    from longtail.demo import DEMO_DATA
    from longtail.demo import demo as run

    run(DEMO_DATA, registry, work, port, keeps_serving=serve)
