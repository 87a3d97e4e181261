"""The service as tools of the Model Context Protocol, for agents: `longtail mcp`."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from longtail.models.errors import LongtailError
from longtail.service.client import AsyncClient

if TYPE_CHECKING:  # of the extra `mcp`
    from mcp.server import MCPServer

_INSTRUCTIONS = (
    "Subject indexing with a large vocabulary. suggest finds labels for a text, search finds "
    "labels by name. Use ids from their answers only; never invent one."
)
_ESCAPES = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>\\u[dD][89a-fA-F]..)|\\.")
Text = Annotated[str, Field(description="The text to label.", min_length=1)]
LabelIds = Annotated[list[str], Field(description="Ids of labels, from suggest or search.")]
Limit = Annotated[int, Field(ge=1, le=100)]


class AgentTools:
    """The tools that agents may use on a service. Agents get a refusal with its reason."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def suggest(self, text: Text, k: Limit = 10) -> dict[str, Any]:
        """Find the best labels for a text, each with id, name and probability, the best first."""
        return await _told(self._client.predict(text, k=k))

    async def search(self, query: str, limit: Limit = 20) -> dict[str, Any]:
        """Find labels of the vocabulary by words of their names."""
        return await _told(self._client.labels(query, limit=limit))

    async def explain(self, text: Text, label_id: str) -> dict[str, Any]:
        """Say why a label fits a text: words, names found, similar documents, scores."""
        return await _told(self._client.predict(text, k=1, include=[label_id], explain=True))

    async def feedback(
        self,
        text: Text,
        accepted: LabelIds | None = None,
        rejected: LabelIds | None = None,
        added: LabelIds | None = None,
    ) -> dict[str, Any]:
        """Store what a person said of labels: suggested and right, suggested and wrong, missing."""
        given = {"text": text, "accepted": accepted, "rejected": rejected, "added": added}
        entry = {name: value for name, value in given.items() if value is not None}
        return await _told(self._client.give_feedback([entry]))


async def _told(answer: Awaitable[BaseModel]) -> dict[str, Any]:
    try:
        return (await answer).model_dump(exclude_none=True)
    except LongtailError as error:
        from mcp.server.mcpserver.exceptions import ToolError

        raise ToolError(str(error)) from error


def make_server(client: AsyncClient, *, read_only: bool = False) -> MCPServer:
    """Return a server with all `AgentTools`, or the tools that store nothing.

    It uses the client on its own event loop.
    """
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.mcpserver.tools import Tool

    class StrictTool(Tool):
        async def run(self, arguments: dict[str, Any], *rest: Any, **options: Any) -> Any:
            """Refuse arguments that the tool does not have: it would go on without them."""
            known = self.parameters["properties"]
            for name in sorted(arguments.keys() - known):
                raise ToolError(f"{self.name}: no argument {name!r}; it has {', '.join(known)}")
            return await super().run(arguments, *rest, **options)

    own = AgentTools(client)
    functions: list[Any] = [own.suggest, own.search, own.explain, own.feedback]
    tools: list[Tool] = [StrictTool.from_function(x) for x in functions[: 3 if read_only else 4]]
    return MCPServer("longtail", instructions=_INSTRUCTIONS, log_level="WARNING", tools=tools)


def mend_surrogates() -> None:
    """Replace halves of surrogate pairs on stdin by U+FFFD, as the server does with bad UTF-8.

    The server would drop a message that has one, and its client would wait for ever.
    """
    source, (end, start) = os.fdopen(os.dup(0), "rb"), os.pipe()
    os.dup2(end, 0)

    def copy() -> None:
        with os.fdopen(start, "wb", 0) as target:
            for line in source:
                target.write(_ESCAPES.sub(lambda x: rb"\ufffd" if x["half"] else x[0], line))

    Thread(target=copy, daemon=True).start()
