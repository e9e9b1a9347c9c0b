"""Commands in the background: real processes as tasks of a real agent, with the real tools."""

from __future__ import annotations

import os
import re
from pathlib import Path

from retinue.testing.model import ScriptedModel
from retinue.testing.request import SeenRequest
from retinue.testing.script import call, calls, text
from tests.scenarios.stock import quiet, said_to, stock
from tests.support.processes import runs


def result(request: SeenRequest) -> str:
    """The newest tool result of a request."""
    return str(request.messages[-1])


async def test_a_background_command_is_told_of_and_its_output_is_read_piece_by_piece(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script(
        "R",
        calls(call("bash", command="echo one; read x < go; echo two", description="two words", run_in_background=True)),
        calls(call("bash", command="until [ -s out ]; do :; done; true")),
        text("waiting"),
        calls(call("task_output", task_id="bash-1")),
        text("both"),
    )
    os.mkfifo(tmp_path / "go")
    async with stock(model, tmp_path) as app:
        (tmp_path / "out").write_text("ready")
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await model.wait_requests(3, "R")
        assert "bash-1" in result(model.requests("R")[1])
        await agent.wait_idle()
        (tmp_path / "go").write_text("now\n")
        await quiet(app, agent)
        notice = said_to(model.requests("R")[3])[-1]
        assert "bash-1" in notice
        assert "two words" in notice
        shown = result(model.requests("R")[4])
        assert re.search(r"one\\ntwo\\n\[status: completed", shown), shown


async def test_a_killed_background_command_is_gone_with_its_whole_group(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script(
        "R",
        calls(
            call("bash", command=f"bash -c 'sleep 1000; :' {tmp_path}/mark & echo > pid; wait", run_in_background=True)
        ),
        calls(call("bash", command="until [ -s pid ]; do :; done; cat pid")),
        calls(call("task_kill", task_id="bash-1", reason="not needed")),
        calls(call("task_output", task_id="bash-1", wait=True)),
        text("gone"),
    )
    async with stock(model, tmp_path) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await quiet(app, agent)
        assert "[status: killed" in result(model.requests("R")[4])
        assert not runs(f"{tmp_path}/mark")


async def test_the_end_of_its_agent_ends_a_background_command(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script(
        "R",
        calls(call("bash", command=f"bash -c 'echo > pid; sleep 1000; :' {tmp_path}/mark", run_in_background=True)),
        calls(call("bash", command="until [ -s pid ]; do :; done")),
        text("left it running"),
    )
    async with stock(model, tmp_path) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        assert runs(f"{tmp_path}/mark")
        await app.close(agent)
        assert not runs(f"{tmp_path}/mark")
