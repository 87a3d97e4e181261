"""Paths behind a proxy that serves this service below a prefix, as ASGI and uvicorn mean it."""

from __future__ import annotations

from starlette.types import Scope


def path_of(scope: Scope) -> str:
    """Return the path of a request as routes are declared, without the prefix of a proxy.

    It is what Starlette's router looks at; whoever decides by a path must decide by the same one.
    """
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if path == root:
        return ""
    return path[len(root) :] if path.startswith(f"{root}/") and root else path
