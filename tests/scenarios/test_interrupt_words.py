"""What a model is told when it interrupts something that is not at work."""

from __future__ import annotations

from pathlib import Path

from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from tests.scenarios.stock import quiet, stock


async def test_an_interrupt_of_nobody_says_that_nothing_was_stopped(tmp_path: Path) -> None:
    model = ScriptedModel(
        calls(call("interrupt_agent", agent_id="bash-1"), call("interrupt_agent", agent_id="agent-unknown")),
        text("I see"),
    )
    async with stock(model, tmp_path) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await quiet(app, agent)
        task, unknown = (str(message) for message in model.requests()[-1].messages[-2:])
        assert "task_kill" in task
        assert "nothing to stop" in unknown
