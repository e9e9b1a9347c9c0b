"""Servers of tools that a client brings for one session: its agents have them, and nobody else."""

import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from tests.acp.client import WireError, connected
from tests.scenarios.stock import stock

PROGRAM = str(Path(__file__).parents[1] / "plugins" / "mcp_servers" / "plain.py")
SERVER: dict[str, Any] = {"name": "my plain/server", "command": sys.executable, "args": [PROGRAM], "env": []}
HERE: dict[str, Any] = {"run_in_background": False}


async def test_the_agents_of_a_session_have_the_tools_of_its_servers_and_no_other_has(tmp_path: Path) -> None:
    model = ScriptedModel()
    tool = "mcp__my-plain-server__add"
    model.script("", calls(call("subagent", description="C", prompt="P", **HERE)), text("six"))
    model.script("C", calls(call(tool, a=2, b=4)), text("six"))
    model.script("", text("no such tool"))
    async with stock(model, tmp_path, "plugins.mcp={}") as app, connected(app) as client:
        params = {"cwd": str(tmp_path), "mcpServers": [SERVER]}
        with_it = (await client.request("session/new", **params))["sessionId"]
        without = await client.new(tmp_path)
        assert await client.prompt(with_it, "Add.") == "end_turn"
        assert await client.prompt(without, "Add.") == "end_turn"
        root, child, _, _, other = model.requests()
        assert tool in {spec.name for spec in root.tools}
        assert tool in {spec.name for spec in child.tools}
        assert tool not in {spec.name for spec in other.tools}
        await client.request("session/close", sessionId=with_it)
        await client.request("session/load", sessionId=with_it, **params)
        agent = next(agent for agent in app.host.agents.roots() if agent.id == with_it)
        assert agent.tools.get(tool) is not None


@pytest.mark.parametrize(
    "server",
    [
        {"name": "x", "args": [], "env": []},
        {"name": "x", "command": "a", "url": "http://b"},
        {"type": "sse", "name": "x", "url": "http://b", "headers": []},
        {"type": "http", "name": "x", "url": "ftp://b", "headers": []},
        {"command": "a"},
        7,
    ],
)
async def test_a_server_that_cannot_be_meant_is_refused_before_a_session_is_made(tmp_path: Path, server: Any) -> None:
    async with stock(ScriptedModel(), tmp_path, "plugins.mcp={}") as app, connected(app) as client:
        with pytest.raises(WireError) as caught:
            await client.request("session/new", cwd=str(tmp_path), mcpServers=[server])
        assert caught.value.code == -32602
        assert await app.host.sessions.store.roots() == []


async def test_servers_are_refused_where_the_plugin_is_off_instead_of_being_left_out(tmp_path: Path) -> None:
    async with stock(ScriptedModel(), tmp_path, "plugins.mcp=null") as app, connected(app) as client:
        with pytest.raises(WireError) as caught:
            await client.request("session/new", cwd=str(tmp_path), mcpServers=[SERVER])
        assert "switched off" in str(caught.value)
