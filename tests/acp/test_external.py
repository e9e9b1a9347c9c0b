"""External agents below a session over the wire: what they do by themselves is shown while they do it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from tests.acp.client import SUBAGENTS, connected
from tests.acp.screen import Screen
from tests.scenarios.stock import CONTINUABLE, children, stock
from tests.support.external import AGENT


def _external(state: Path) -> str:
    state.mkdir()
    agent = {"command": sys.executable, "args": ["-S", str(AGENT)], "env": {"ACP_STATE": str(state)}}
    return f"plugins.acp={json.dumps({'agents': {'ext': {**agent, 'background_mode': 'one-shot'}}})}"


def _model(directive: str) -> ScriptedModel:
    model = ScriptedModel()
    model.script("", calls(call("agent_ext", description="job", prompt=f"do: {directive}")), text("Heard."))
    return model


async def test_a_client_that_shows_children_sees_the_calls_of_a_program_in_its_session(tmp_path: Path) -> None:
    model = _model("toil work")
    async with (
        stock(model, tmp_path, *CONTINUABLE, _external(tmp_path / "state")) as app,
        connected(app, capabilities=SUBAGENTS) as client,
    ):
        id = await client.new(tmp_path)
        await client.prompt(id, "Let it work.")
        (child,) = await children(app, id)
        updates = client.of(child)
    shown = Screen.of(updates).calls
    assert [(c["title"][:7], c.get("kind", "other"), c["status"]) for c in shown.values()] == [
        ("Read it", "execute", "completed"),  # a program may use an id again
        ("a call", "other", "completed"),
    ]
    kinds = [update["sessionUpdate"] for update in updates]
    assert kinds.index("tool_call") < kinds.index("tool_call_update") < kinds.index("agent_message_chunk", 1)


@pytest.mark.parametrize("ending", ["fail", "die"])
async def test_calls_of_a_program_that_fails_have_failed(tmp_path: Path, ending: str) -> None:
    model = _model(f"toil {ending}")
    async with (
        stock(model, tmp_path, *CONTINUABLE, _external(tmp_path / "state")) as app,
        connected(app, capabilities=SUBAGENTS) as client,
    ):
        id = await client.new(tmp_path)
        await client.prompt(id, "Let it work.")
        (child,) = await children(app, id)
        shown = Screen.of(client.of(child)).calls
    assert [call["status"] for call in shown.values()] == ["failed"] * 2


async def test_others_see_them_as_the_progress_of_the_delegation(tmp_path: Path) -> None:
    model = _model("work")
    async with stock(model, tmp_path, *CONTINUABLE, _external(tmp_path / "state")) as app, connected(app) as client:
        id = await client.new(tmp_path)
        await client.prompt(id, "Let it work.")
        updates: list[dict[str, Any]] = client.of(id, "tool_call_update")
        sessions = {session for session, _ in client.updates}
    lines = [str(update["content"]) for update in updates if "content" in update]
    assert any("job: step 1, Read it" in line for line in lines)
    assert "Found it." in lines[-1]
    assert sessions == {id}
