"""`longtail mcp`: a service as tools for agents."""

from __future__ import annotations

import os
from typing import Annotated

import typer


def mcp(
    url: Annotated[str, typer.Option(help="URL of the service.")] = "http://127.0.0.1:8000",
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable that holds a key of the service."),
    ] = None,
) -> None:
    """Offer a running service to agents by the Model Context Protocol, on stdin and stdout.

    The tools are suggest, search, explain and feedback.
    """
    from longtail.models.extras import require

    require("mcp", "longtail mcp")
    key = None if api_key_env is None else _key_of(api_key_env)
    from longtail.service.client.agents import make_server
    from longtail.service.client.client import AsyncClient

    make_server(AsyncClient(url, key=key)).run()


def _key_of(variable: str) -> str:
    from longtail.models.errors import ConfigError

    if not (key := os.environ.get(variable)):
        raise ConfigError(f"--api-key-env {variable!r}: no such environment variable; set it")
    return key
