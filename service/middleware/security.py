"""Who may ask for what, and the headers that tell browsers how to behave."""

from __future__ import annotations

import base64
import ipaddress
from functools import lru_cache
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from longtail.service.web.api_keys import KeyRing, Keys
from longtail.service.web.problem_handlers import problem_response
from longtail.service.web.scopes import (
    DOCS_PATH,
    HEALTH_PATHS,
    PAGE_PREFIX,
    add_log_fields,
    is_under,
)
from longtail.service.wire.problems import Kind

ADMIN_PREFIX = "/v1/admin"
PUBLIC_PATHS = HEALTH_PATHS | {"/", "/openapi.json"}
"""Paths that need no key: health checks, and those that reveal nothing about texts."""

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
        scope: Of the request.
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
