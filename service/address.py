"""The address that the service listens on: checked before a model is loaded for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from models.errors import ConfigError, LongtailError

_UVICORN_FAILED = 3
"""The status of a server that did not start, which other commands don't have."""


class ServeError(LongtailError):
    """The service could not start."""


def check_address(host: str, port: int) -> None:
    """Refuse an address that can't be listened on.

    Raises:
        ConfigError: The port is taken, or this machine has no such address.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"can't listen on {host!r}, port {port}: {reason}; choose another --host or --port"
        ) from error


@contextmanager
def telling_failed_start() -> Iterator[None]:
    """Turn the exit of a server that did not start into an error of ours.

    Raises:
        ServeError: It did not start.
        SystemExit: It ended otherwise.
    """
    try:
        yield
    except SystemExit as end:
        if end.code != _UVICORN_FAILED:
            raise
        raise ServeError("the service did not start; its log above says why") from end
