"""The heads of requests: the prefix of a proxy, the host, and the header `Upgrade`.

A page of another site whose name resolves to this machine (DNS rebinding) is, to its browser, of
the same origin as this service. Its requests differ by one thing, the name in `Host`.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from longtail.service.web.deps import Service
from longtail.service.web.problem_handlers import problem_response
from longtail.service.wire.problems import Kind

BAD_HOST = Kind("bad-host", 400, "A request has one header 'Host'")
OTHER_HOST = Kind("other-host", 421, "This service does not answer for that host")
RawHeaders: TypeAlias = list[tuple[bytes, bytes]]
UPGRADE = Kind("upgrade-with-body", 400, "A request with a body can't ask for another protocol")

_PRIVATE_SUFFIXES = ("localhost", "internal", "svc", "cluster.local")
"""Domains that nobody can register: of one machine, of a private network, of Kubernetes."""
_HOST = re.compile(r"(?P<name>\[[^]]*\]|[^:]*)(:[0-9]*)?")
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_SHOWN_HOST = 100


def below_root(scope: Scope, root: str) -> Response | None:
    """Note in a request under which prefix a proxy's clients see the service.

    The proxy may strip the prefix or leave it. Redirects, the API's documentation and problem
    documents then name paths as clients must ask for them; health checks ask without the prefix.

    Args:
        scope: Of the request; changed in place, as error handlers see it too.
        root: The prefix: not empty, and without a slash at its end.

    Returns:
        A redirect to the page, where the request asks for the prefix alone.
    """
    scope["root_path"] = root
    if scope["path"] == root:
        return RedirectResponse(f"{root}/")
    if not f"{scope['path']}/".startswith(f"{root}/"):
        scope["path"] = root + scope["path"]
    return None


def closing(headers: RawHeaders) -> RawHeaders:
    """Return the headers of the answer to a request with the header `Upgrade`.

    The parser takes what follows the head of such a request for another protocol, or for the next
    request. So it is not read, whatever it is: the connection is closed.
    """
    return [x for x in headers if x[0].lower() != b"connection"] + [(b"connection", b"close")]


def head_refusal(scope: Scope, service: Service) -> Response | None:
    """Return the answer to a request with a wrong `Host`, or with `Upgrade` and a body.

    Where a key is required all hosts are allowed: pages of other sites have no key.
    """
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) > 1 or (not hosts and scope["http_version"] != "1.0"):  # RFC 9112, 3.2
        detail = f"The request has {len(hosts)} headers 'Host'; send one"
        return problem_response(Request(scope), BAD_HOST, detail)
    names = tuple(service.settings.allowed_hosts)
    if hosts and not (service.keys.api.is_configured or is_allowed(hosts[0], names)):
        name = hosts[0][:_SHOWN_HOST].decode("latin-1")
        detail = (
            f"The header 'Host' is {name!r}; expected an IP address, 'localhost', or a name of "
            "the setting 'allowed_hosts': if this is a name of the service, add it to "
            "LONGTAIL_ALLOWED_HOSTS and restart"
        )
        return problem_response(Request(scope), OTHER_HOST, detail)
    headers = dict(scope["headers"])
    has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"").strip(b"0")
    if b"upgrade" in headers and has_body:
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
    if not _NAME.fullmatch(name):
        return False
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
