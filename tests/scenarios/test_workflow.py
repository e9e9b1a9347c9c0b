"""A process ends while a workflow runs: the script runs again, and finds again what its agents have done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio

from retinue.session.events import Event, TurnEnd, WorkflowAgentEnd, WorkflowAgentStart, WorkflowEnd, WorkflowStart
from retinue.session.session import Session
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import Reply, call, calls, hold, text
from tests.scenarios.stock import children, log, stock

ON = "plugins.workflow={}"
SCRIPT = """
first = await agent("do a", label="a")
return [first, *await parallel([agent("do " + name, label=name) for name in "bc"])]
"""


def workflow(script: str) -> Reply:
    return calls(call("workflow", script=script, meta={"name": "W"}))


async def test_agents_that_have_ended_are_not_run_again_and_those_at_work_go_on(tmp_path: Path) -> None:
    model, never = ScriptedModel(), Gate()
    model.script("R", workflow(SCRIPT))
    model.script("a", text("A"))
    for name in "bc":
        model.script(name, hold(never, text("never")))
    async with stock(model, tmp_path, ON, "plugins.workflow.concurrency=2", at_rest=False) as app:
        agent = await app.agent(label="R", id="root")
        await agent.follow_up("go").wait()
        await model.wait_requests(1, "b")
        await model.wait_requests(1, "c")
    again = ScriptedModel(text("done"))  # for the root
    for name in "bc":
        again.script(name, text(name.upper()))
    async with stock(again, tmp_path, ON) as app:
        run = await app.resume("root")
        await run.agent.wait_idle()
        (result,) = again.requests()[-1].results
        assert result.splitlines() == [
            '["A","B","C"]',
            "",
            "[workflow: 3 agents, 0 failed]",
            "[the process that ran this script ended in the middle of it, so it ran again from its start: 3 of its "
            "agents were found again with what they had done, 0 were started only now]",
        ]
        assert len(await children(app, run.agent.id)) == 3
        events = [event.data for event in await log(app, run.agent.id)]
        assert [data.n for data in events if isinstance(data, WorkflowStart)] == [1, 2]
        assert len({data.id for data in events if isinstance(data, WorkflowAgentStart)}) == 3
        assert [data.outcome for data in events if isinstance(data, WorkflowEnd)] == ["completed"]


async def test_equal_questions_are_different_agents_that_are_found_again(tmp_path: Path) -> None:
    model, never = ScriptedModel(), Gate()
    script = 'return await parallel([agent("vote", label=f"v{n}") for n in range(2)])'
    model.script("R", workflow(script))
    model.script("v0", text("yes"))
    model.script("v1", hold(never, text("never")))
    async with stock(model, tmp_path, ON, "plugins.workflow.concurrency=2", at_rest=False) as app:
        agent = await app.agent(label="R", id="root")
        one_ended = anyio.Event()

        def look(_: Session, events: Sequence[Event]) -> None:
            if any(isinstance(event.data, WorkflowAgentEnd) for event in events):
                one_ended.set()

        agent.session.observe(look)
        await agent.follow_up("go").wait()
        await never.wait_reached()
        await one_ended.wait()
    again = ScriptedModel(text("done"))  # for the root
    again.script("v1", text("no"))
    async with stock(again, tmp_path, ON) as app:
        run = await app.resume("root")
        await run.agent.wait_idle()
        assert again.requests()[-1].results[0].startswith('["yes","no"]')


async def test_by_configuration_agents_that_were_cut_off_end_and_are_none(tmp_path: Path) -> None:
    model, never = ScriptedModel(), Gate()
    model.script("R", workflow('return await agent("x", label="a")'))
    model.script("a", hold(never, text("never")))
    async with stock(model, tmp_path, ON, at_rest=False) as app:
        agent = await app.agent(label="R", id="root")
        await agent.follow_up("go").wait()
        await never.wait_reached()
    again = ScriptedModel(text("done"))  # for the root
    async with stock(again, tmp_path, ON, "recovery.on_interrupt=settle") as app:
        run = await app.resume("root")
        await run.agent.wait_idle()
        assert "[failed: a: interrupted" in again.requests()[-1].results[0]
        (child,) = await children(app, run.agent.id)
        ends = [event.data.reason for event in await log(app, child) if isinstance(event.data, TurnEnd)]
        assert ends == ["interrupted"]
