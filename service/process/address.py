"""The address that the service listens on: checked before a model is loaded for it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from longtail.models.errors import ConfigError, LongtailError

_UVICORN_FAILED = 3
"""The status of a server that did not start, which other commands don't have."""


class ServeError(LongtailError):
    """The service could not start."""


def check_address(host: str, port: int) -> None:
    """Check that an address can be listened on, before anything is loaded for it.

    Raises:
        ConfigError: It can't be; says why in one sentence, where uvicorn would write log lines.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                # As the server will do, so that what it may take over is not refused here.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host!r} is taken by another process, which may still be "
                "stopping; wait for it or stop it, or choose another port with --port or "
                "LONGTAIL_PORT (0 takes a free one)"
            ) from error
        raise ConfigError(
            f"can't listen on port {port} of {host!r} ({reason}); choose another port with --port, "
            "or an address of this machine with --host"
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
