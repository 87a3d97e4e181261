"""What is known of a request by its ASGI scope: its path behind a proxy, and what was noted of it.

Noted are, while it is answered, log fields, its id, and that its client has gone.
"""

from __future__ import annotations

from starlette.types import Scope

from longtail.extensions import Paths, extensions

STREAM_PATHS = frozenset({"/v1/batch"})
"""Whose bodies may be of any length, because they are never held whole."""
PAGE_PREFIX = "/page/"
DOCS_PATH = "/docs"
EXTENSION_PATHS = tuple(x.paths for x in extensions() if x.paths is not None)
HEALTH_PATHS = frozenset({"/livez", "/readyz", "/metrics"}).union(
    *(paths.health for paths in EXTENSION_PATHS)
)
"""Paths that are asked all the time; their log lines are for debugging."""
_LOG_FIELDS = "log_fields"
_REQUEST_ID = "request_id"
_IS_CLIENT_GONE = "is_client_gone"
CLIENT_GONE_STATUS = 499
"""What nginx, too, logs for a client that hung up before its answer was complete."""


def is_under(path: str, *prefixes: str) -> bool:
    """Whether a path is one of these or below one of them."""
    return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)


def rules_of(path: str) -> Paths | None:
    """Return the rules of a path that belongs to an extension."""
    return next((rules for rules in EXTENSION_PATHS if is_under(path, rules.prefix)), None)


def path_of(scope: Scope) -> str:
    """Return the path of a request as routes are declared, without the prefix of a proxy.

    Starlette's router looks at the same path; every decision by path must use it.
    """
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if path == root:
        return ""
    return path[len(root) :] if path.startswith(f"{root}/") and root else path


def add_log_fields(scope: Scope, **fields: object) -> None:
    """Add fields to the log line of a request; never a part of its text."""
    scope.setdefault("state", {}).setdefault(_LOG_FIELDS, {}).update(fields)


def log_fields_of(scope: Scope) -> dict[str, object]:
    """Return the fields that were added to the log line of a request."""
    fields: dict[str, object] = scope.get("state", {}).get(_LOG_FIELDS, {})
    return fields


def note_request_id(scope: Scope, request_id: str) -> None:
    """Note the id that the answer to a request will name."""
    scope.setdefault("state", {})[_REQUEST_ID] = request_id


def note_client_gone(scope: Scope) -> None:
    """Let a request count as one whose client hung up, though its answer had begun as another."""
    scope.setdefault("state", {})[_IS_CLIENT_GONE] = True


def final_status(scope: Scope, status: int) -> int:
    """Return the status that a request is logged and counted with.

    Args:
        scope: Of the request.
        status: With which its answer began.
    """
    return CLIENT_GONE_STATUS if scope.get("state", {}).get(_IS_CLIENT_GONE) else status


def route_of(scope: Scope) -> str:
    """Return the path of the route that a request came to, as it was declared; "none" if none."""
    return str(getattr(scope.get("route"), "path", "none"))


def request_id_of_scope(scope: Scope) -> str | None:
    """Return the id of a request, if it has been noted."""
    found: str | None = scope.get("state", {}).get(_REQUEST_ID)
    return found
