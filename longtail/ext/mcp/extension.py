"""Tools for agents, by the Model Context Protocol: the command `longtail mcp`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from longtail.extensions import Command, Extension


def mcp(
    url: Annotated[str, typer.Option(help="URL of the service.")] = "http://127.0.0.1:8000",
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable that holds a key of the service."),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Leave out feedback, from which 'learn' trains.")
    ] = False,
) -> None:
    """Offer a service to agents, by MCP on stdin and stdout: suggest, search, explain, feedback."""
    from longtail.models.errors import ConfigError
    from longtail.models.extras import require

    require("mcp", "longtail mcp")
    key = None if api_key_env is None else os.environ.get(api_key_env)
    if api_key_env is not None and not key:
        raise ConfigError(f"--api-key-env {api_key_env!r}: no such environment variable; set it")
    from longtail.ext.mcp.server import make_server, mend_surrogates
    from longtail.service.client import AsyncClient

    server = make_server(AsyncClient(url, key=key), read_only=read_only)
    mend_surrogates()
    server.run()


EXTENSION = Extension("mcp", commands=lambda: [Command("mcp", mcp)])
