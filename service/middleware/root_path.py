"""Middleware for a proxy that serves the API under a prefix."""

from __future__ import annotations

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class RootPathMiddleware:
    """Says in every request under which prefix the proxy's clients see the service.

    The proxy may strip the prefix or leave it. Redirects, the API's documentation and problem
    documents then name paths as clients must ask for them; health checks ask without the prefix.
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
            if scope["path"] == self._root:  # the page is below it
                await RedirectResponse(f"{self._root}/")(scope, receive, send)
                return
            if not f"{scope['path']}/".startswith(f"{self._root}/"):
                scope["path"] = self._root + scope["path"]
        await self._app(scope, receive, send)
