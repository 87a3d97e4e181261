"""Paths that need a treatment of their own, and the path of a request behind a proxy."""

from __future__ import annotations

from starlette.types import Scope

STREAM_PATHS = frozenset({"/v1/batch"})
"""Whose bodies may be of any length, because they are never held whole."""
PAGE_PREFIX = "/page/"
DOCS_PATH = "/docs"
INFERENCE_PROTOCOL = "/v2"
PROTOCOL_PATHS = (INFERENCE_PROTOCOL, "/v1/projects")
"""Where paths of protocols begin that say 400 where our own routes say 422."""


def is_under(path: str, *prefixes: str) -> bool:
    """Whether a path is one of these or below one of them."""
    return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)


def path_of(scope: Scope) -> str:
    """Return the path of a request as routes are declared, without the prefix of a proxy.

    Starlette's router looks at the same path; every decision by path must use it.
    """
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if path == root:
        return ""
    return path[len(root) :] if path.startswith(f"{root}/") and root else path
