"""Requests that must not be answered as they are addressed: to another host, or with an upgrade.

A page of another site whose name resolves to this machine (DNS rebinding) is, to its browser, of
the same origin as this service. Its requests differ by one thing, the name in `Host`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longtail.service.web.problem_handlers import problem_response
from longtail.service.wire.problems import Kind

BAD_HOST = Kind("bad-host", 400, "A request has one header 'Host'")
OTHER_HOST = Kind("other-host", 421, "This service does not answer for that host")
UPGRADE = Kind("upgrade-with-body", 400, "A request with a body can't ask for another protocol")

_PRIVATE_SUFFIXES = ("localhost", "internal", "svc", "cluster.local")
"""Domains that nobody can register: of one machine, of a private network, of Kubernetes."""
_HOST = re.compile(r"(?P<name>\[[^]]*\]|[^:]*)(:[0-9]*)?")
_SHOWN_HOST = 100


class CloseUpgradesMiddleware:
    """Closes the connection after the answer to a request with the header `Upgrade`.

    The parser takes what follows the head of such a request for another protocol, or for the next
    request. So whatever it is, it is not read. It must be in front of all that answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and add the header `Connection: close` to its answer."""

        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [x for x in message.get("headers", ()) if x[0].lower() != b"connection"]
                message = {**message, "headers": [*kept, (b"connection", b"close")]}
            await send(message)

        is_upgrade = scope["type"] == "http" and _values(scope, b"upgrade")
        await self._app(scope, receive, send_and_close if is_upgrade else send)


class RequestHeadMiddleware:
    """Refuses requests with a wrong `Host`, and those with `Upgrade` and a body."""

    def __init__(
        self, app: ASGIApp, *, allowed_hosts: Sequence[str], is_any_host_allowed: Callable[[], bool]
    ) -> None:
        """Stand in front of an application.

        Args:
            app: The application.
            allowed_hosts: See `is_allowed`.
            is_any_host_allowed: Whether all are: where a key is required, pages of other sites,
                which have none, can't do anything.
        """
        self._app = app
        self._allowed_hosts = tuple(allowed_hosts)
        self._is_any_host_allowed = is_any_host_allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 400 or 421."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        hosts = _values(scope, b"host")
        if len(hosts) > 1 or (not hosts and scope["http_version"] != "1.0"):  # RFC 9112, 3.2
            detail = f"The request has {len(hosts)} headers 'Host'; send one"
            return problem_response(Request(scope), BAD_HOST, detail)
        if hosts and not (self._is_any_host_allowed() or is_allowed(hosts[0], self._allowed_hosts)):
            name = hosts[0][:_SHOWN_HOST].decode("latin-1")
            detail = (
                f"The header 'Host' is {name!r}; expected an IP address, 'localhost', or a name of "
                "the setting 'allowed_hosts': if this is a name of the service, add it to "
                "LONGTAIL_ALLOWED_HOSTS and restart"
            )
            return problem_response(Request(scope), OTHER_HOST, detail)
        if _values(scope, b"upgrade") and _has_body(scope):
            detail = (
                "The request has the header 'Upgrade' and a body; send it in HTTP/1.1 without that "
                "header (in Java: HttpClient.Version.HTTP_1_1)"
            )
            return problem_response(Request(scope), UPGRADE, detail)
        return None


@lru_cache(maxsize=256)
def is_allowed(host: bytes, allowed_hosts: tuple[str, ...]) -> bool:
    """Whether a value of `Host` can't be the name of another site.

    IP addresses can't, nor can names without a dot, and those below `localhost`, `internal`, `svc`
    and `cluster.local`: no site has them.

    Args:
        host: Value of the header, with or without a port.
        allowed_hosts: Further names; `*.example.org` stands for all below, `*` for all.
    """
    name = _name_of(host.decode("latin-1").lower())
    if "*" in allowed_hosts or name in allowed_hosts or _is_address(name):
        return True
    suffixes = [*_PRIVATE_SUFFIXES, *(x[2:] for x in allowed_hosts if x.startswith("*."))]
    return "." not in name or any(name.endswith(f".{suffix}") for suffix in suffixes)


def _name_of(host: str) -> str:
    """Return a host without its port, and without the dot at the end of a full name."""
    found = _HOST.fullmatch(host)
    return (found["name"] if found else host).removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _has_body(scope: Scope) -> bool:
    lengths = _values(scope, b"content-length")
    return bool(_values(scope, b"transfer-encoding")) or any(x.strip(b"0") for x in lengths)


def _values(scope: Scope, expected: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == expected]
