"""The tools for agents, by the Model Context Protocol."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading

import pytest
from typer.testing import CliRunner

import longtail
from longtail.models.errors import ConfigError
from longtail.service.client import AsyncClient


def test_agents_suggest_search_explain_and_give_feedback(start_server, two_versions, tmp_path):
    mcp = pytest.importorskip("mcp", reason="the extra 'mcp' is not installed")
    from longtail.ext.mcp.server import make_server

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
            for name in tools:
                assert f"{name}: no argument 'top_k'; it has " in await call(name, top_k=3)
            assert "it has text, k" in await call("suggest", text="a text", top_k=3)

    with start_server(registry=two_versions, feedback=tmp_path / "feedback") as url:
        asyncio.run(ask(url))


def test_a_server_for_reading_has_no_tool_that_stores():
    mcp = pytest.importorskip("mcp", reason="the extra 'mcp' is not installed")
    from longtail.ext.mcp.server import make_server

    async def tools():
        async with (
            AsyncClient("http://127.0.0.1:9") as own,
            mcp.Client(make_server(own, read_only=True)) as agent,
        ):
            return {each.name for each in (await agent.list_tools()).tools}

    assert asyncio.run(tools()) == {"suggest", "search", "explain"}


def test_half_of_a_surrogate_pair_gets_an_answer(start_server, two_versions):
    pytest.importorskip("mcp", reason="the extra 'mcp' is not installed")
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {
        "name": "x", "version": "1"}}  # fmt: skip
    calls = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized", "params": {}},
    ]
    texts = ["\ud800 a text", "a \udc00\ud800 text", "\U0001f600 text", "a \\ud800 text"]
    for number, text in enumerate(texts, 2):
        arguments = {"name": "suggest", "arguments": {"text": text, "k": 2}}
        calls.append({"id": number, "method": "tools/call", "params": arguments})
    lines = [json.dumps({"jsonrpc": "2.0"} | call) + "\n" for call in calls]
    with start_server(registry=two_versions) as url:
        command = [sys.executable, "-m", "longtail", "mcp", "--url", url]
        agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        agent.stdin.write("".join(lines))
        agent.stdin.flush()
        stop = threading.Timer(60, agent.kill)
        stop.start()
        found = [json.loads(agent.stdout.readline() or "{}") for _ in range(1 + len(texts))]
        stop.cancel()
        agent.stdin.close()
        agent.stdout.close()
        agent.wait()
    assert sorted(each["id"] for each in found) == [1, 2, 3, 4, 5]
    assert not any("error" in each or each["result"].get("isError") for each in found)


def test_a_key_that_is_not_there_is_refused(monkeypatch):
    pytest.importorskip("mcp", reason="the extra 'mcp' is not installed")
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ConfigError, match="NO_SUCH_KEY"):
        CliRunner().invoke(
            longtail.app, ["mcp", "--api-key-env", "NO_SUCH_KEY"], catch_exceptions=False
        )
