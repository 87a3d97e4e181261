"""The tools for agents, by the Model Context Protocol."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

import longtail
from longtail.models.errors import ConfigError
from longtail.service.client.client import AsyncClient


def test_agents_suggest_search_explain_and_give_feedback(start_server, two_versions, tmp_path):
    mcp = pytest.importorskip("mcp", reason="the extra 'mcp' is not installed")
    from longtail.service.client.agents import make_server

    async def ask(url):
        async with AsyncClient(url) as own, mcp.Client(make_server(own)) as agent:
            tools = {each.name for each in (await agent.list_tools()).tools}
            assert tools == {"suggest", "search", "explain", "feedback"}

            async def call(name, **arguments):
                found = await agent.call_tool(name, arguments)
                text = found.content[0].text
                return text if found.is_error else json.loads(text)

            found = (await call("suggest", text="a text", k=2))["results"][0]["labels"]
            assert [each["id"] for each in found] == ["L0", "L1"]
            assert (await call("search", query="Label 3"))["labels"][0]["id"] == "L3"
            why = await call("explain", text="a text", label_id="L3")
            assert why["results"][0]["labels"][0]["explanation"]["training_count"] == 3
            kept = await call("feedback", text="a text", accepted=["L0"], rejected=["L1"])
            assert len(kept["entries"]) == 1
            assert "L99" in await call("explain", text="a text", label_id="L99")

    with start_server(registry=two_versions, feedback=tmp_path / "feedback") as url:
        asyncio.run(ask(url))


def test_a_key_that_is_not_there_is_refused(monkeypatch):
    pytest.importorskip("mcp", reason="the extra 'mcp' is not installed")
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ConfigError, match="NO_SUCH_KEY"):
        CliRunner().invoke(
            longtail.app, ["mcp", "--api-key-env", "NO_SUCH_KEY"], catch_exceptions=False
        )
