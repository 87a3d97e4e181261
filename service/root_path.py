"""Paths behind a proxy that serves this service below a prefix, as ASGI and uvicorn mean it."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


def path_of(scope: Scope) -> str:
    """Return the path of a request as routes are declared, without the prefix of a proxy.

    It is what Starlette's router looks at; whoever decides by a path must decide by the same one.
    """
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if path == root:
        return ""
    return path[len(root) :] if path.startswith(f"{root}/") and root else path


class RootPathMiddleware:
    """Says in every request under which prefix the proxy's clients see the service.

    The proxy may strip the prefix or leave it. Redirects, the API's documentation and problem
    documents then name paths as clients must ask for them; probes ask without the prefix.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        """Stand in front of an application.

        Args:
            app: The application.
            root_path: The prefix: not empty, and without a slash at its end.
        """
        self._app = app
        self._root = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, its path below the prefix (in place: error handlers see it too)."""
        if scope["type"] == "http":
            scope["root_path"] = self._root
            if not f"{scope['path']}/".startswith(f"{self._root}/"):
                scope["path"] = self._root + scope["path"]
        await self._app(scope, receive, send)
