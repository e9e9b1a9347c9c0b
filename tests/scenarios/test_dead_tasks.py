"""A process ends while a one-shot child runs as a task: the child does not go on, and its parent is told."""

from __future__ import annotations

from pathlib import Path

from retinue.session.events import TurnEnd
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import Call, call, calls, hold, text
from tests.scenarios.stock import CONTINUABLE, children, log, notices, quiet, said_to, stock

ONE_SHOT = ("plugins.subagent.background_mode=one-shot",)


async def test_the_turn_of_a_child_whose_task_died_is_closed_and_its_parent_is_told_once(tmp_path: Path) -> None:
    model, never = ScriptedModel(), Gate()
    model.script("R", calls(call("subagent", description="C", prompt="P", run_in_background=True)), text("started"))
    model.script("C", hold(never, text("never")))
    async with stock(model, tmp_path, *ONE_SHOT, at_rest=False) as app:
        agent = await app.agent(label="R", id="root")
        await agent.follow_up("go").wait()
        await never.wait_reached()
        await agent.wait_idle()
    again = ScriptedModel(text("noted"))
    async with stock(again, tmp_path, *ONE_SHOT) as app:
        run = await app.resume("root")
        await quiet(app, run.agent)
        (child,) = await children(app, run.agent.id)
        end = (await log(app, child))[-1].data
        assert isinstance(end, TurnEnd)
        assert end.reason == "interrupted"
        assert app.host.agents.get(child) is None
        notices = [said for said in said_to(again.requests()[-1]) if "subagent-1" in said]
        assert len(notices) == 1
    assert len(again.requests()) == 1


async def test_a_child_that_an_open_call_waits_for_goes_on(tmp_path: Path) -> None:
    model, never = ScriptedModel(), Gate()
    model.script("R", calls(call("subagent", description="C", prompt="P")))
    model.script("C", hold(never, text("never")))
    async with stock(model, tmp_path, *ONE_SHOT, at_rest=False) as app:
        agent = await app.agent(label="R", id="root")
        await agent.follow_up("go").wait()
        await never.wait_reached()
    again = ScriptedModel()
    again.script("root", text("the answer came through"))
    again.script("C", text("ANSWER"))
    async with stock(again, tmp_path, *ONE_SHOT) as app:
        result = await (await app.resume("root")).result()
        assert result.output == "the answer came through"
        assert "ANSWER" in str(again.requests("root")[-1].messages[-1])


async def test_what_a_dead_task_had_started_is_taken_down_with_it(tmp_path: Path) -> None:
    model, never = ScriptedModel(), Gate()
    task = call("one_shot", description="T", prompt="P", run_in_background=True)
    model.script("R", calls(task), text("started"))
    model.script("T", calls(call("subagent", description="D", prompt="P"), waiting("F")), text("T waits"))
    model.script("D", hold(never, text("never")))
    model.script("F", calls(waiting("E")))
    model.script("E", hold(never, text("never")))
    both = (*CONTINUABLE, "plugins.subagent.instances=[{tool_name: one_shot, background_mode: one-shot}]")
    async with stock(model, tmp_path, *both, at_rest=False) as app:
        agent = await app.agent(label="R", id="root")
        await agent.follow_up("go").wait()
        await never.wait_reached(2)
        await agent.wait_idle()
    again = ScriptedModel(text("noted"))
    async with stock(again, tmp_path, *both) as app:
        run = await app.resume("root")
        await quiet(app, run.agent)
        (run_id,) = await children(app, run.agent.id)
        below = await children(app, run_id)
        assert len(below) == 2
        assert app.host.agents.list() == (run.agent,)
        assert await app.host.sessions.store.owing(run.agent.id) == []
        (told,) = await notices(app, run_id)
        assert "stopped" in told
    assert len(again.requests()) == 1


def waiting(label: str) -> Call:
    return call("subagent", description=label, prompt="P", run_in_background=False)
