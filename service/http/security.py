"""Keys, the heads of requests, and the headers that tell browsers how to behave.

A page of another site whose name resolves to this machine (DNS rebinding) is, to its browser, of
the same origin as this service. Its requests differ by one thing, the name in `Host`.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from functools import lru_cache
from typing import Any, TypeAlias

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from longtail.service.http.api_keys import KeyRing, Keys
from longtail.service.http.deps import (
    DOCS_PATH,
    HEALTH_PATHS,
    PAGE_PREFIX,
    Service,
    add_log_fields,
    is_under,
)
from longtail.service.http.problem_handlers import problem_response
from longtail.service.wire.problems import Kind

ADMIN_PREFIX = "/v1/admin"
PUBLIC_PATHS = HEALTH_PATHS | {"/", "/openapi.json"}
"""Paths that need no key: health checks, and paths that reveal nothing about texts."""

NO_KEY = Kind("unauthorized", 401, "A key is needed")
ADMIN_OFF = Kind("admin-off", 403, "The admin routes are off")

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
}
RAW_SECURITY_HEADERS = [
    (name.lower().encode("latin-1"), value.encode("latin-1"))
    for name, value in SECURITY_HEADERS.items()
]
"""The same, as ASGI sends them."""


def key_refusal(scope: Scope, path: str, keys: Keys) -> Response | None:
    """Return the answer to a request without the key that its path requires: 401, or 403.

    The log line of a request with a key gets the name of the key.
    """
    ring = _ring_for(path, keys)
    if ring is keys.admin and not ring.is_configured:
        detail = (
            "This service has no admin key; make one with 'longtail key NAME', and set "
            "LONGTAIL_ADMIN_KEYS or LONGTAIL_ADMIN_KEYS_FILE"
        )
        return problem_response(Request(scope), ADMIN_OFF, detail)
    if ring is None or not ring.is_configured:
        return None
    name = ring.name_of(_key_of(scope, allows_basic=ring is keys.api))
    if name is None:
        detail = "Send a valid key in the header 'Authorization: Bearer KEY'"
        headers = {"WWW-Authenticate": 'Bearer realm="longtail"'}
        return problem_response(Request(scope), NO_KEY, detail, headers=headers)
    add_log_fields(scope, key=name)
    return None


def _ring_for(path: str, keys: Keys) -> KeyRing | None:
    # Wherever it stands: behind a prefix of a proxy, the router still finds the admin routes.
    if ADMIN_PREFIX in path:
        return keys.admin
    if path in PUBLIC_PATHS or path.startswith(PAGE_PREFIX) or is_under(path, DOCS_PATH):
        return None
    return keys.api


def describe_security(document: dict[str, Any], keys: Keys) -> dict[str, Any]:
    """Let an OpenAPI document say which operations want a key; returns the same one."""
    scheme = {"type": "http", "scheme": "bearer", "description": "A key from 'longtail key'"}
    document.setdefault("components", {})["securitySchemes"] = {"key": scheme}
    problem = {"$ref": "#/components/schemas/Problem"}
    for path, operations in document["paths"].items():
        is_admin = path.startswith(ADMIN_PREFIX)
        if not is_admin and (path in PUBLIC_PATHS or not keys.api.is_configured):
            continue
        for operation in operations.values():
            operation["security"] = [{"key": []}]
            content = {"application/problem+json": {"schema": problem}}
            operation["responses"].setdefault(
                "401", {"description": "Unauthorized", "content": content}
            )
    return document


def client_of(scope: Scope, keys: KeyRing) -> str:
    """Return whose request this is: the name of its key, or else the network that it came from.

    Args:
        scope: The request's ASGI scope.
        keys: Those of all routes but the admin routes; where none is required, none counts.
    """
    if keys.is_configured:
        name = keys.name_of(_key_of(scope, allows_basic=True))
        if name is not None:
            return f"key {name}"
    client = scope.get("client")
    return _network_of(client[0]) if client else ""


@lru_cache(maxsize=4096)
def _network_of(address: str) -> str:
    """Return an IPv4 address as it is, and of an IPv6 address the 64 bits that a site has."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # a name, such as that of a test
        return address
    if isinstance(found, ipaddress.IPv4Address) or found.ipv4_mapped:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False))


def _key_of(scope: Scope, *, allows_basic: bool) -> str:
    """Return the bearer token, or the password of HTTP Basic (RFC 7617); "" without either.

    Basic is for clients that know no other keys, and not for admin: browsers send it unasked.
    """
    kind, _, value = Headers(scope=scope).get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() != "basic" or not allows_basic:
        return ""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


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
        scope: The request's ASGI scope; changed in place, as error handlers see it too.
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
