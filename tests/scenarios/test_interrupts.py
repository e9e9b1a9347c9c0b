"""Interrupts: who may stop whose turn, and what goes on all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.agent.agent import Agent
from retinue.agent.phase import Cause
from retinue.base.chain import Next
from retinue.base.ids import SessionId
from retinue.errors import Unauthorized
from retinue.session.events import TurnEnd
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, optional, text
from retinue.tools.pipeline import ToolRequest
from retinue.tools.tool import ToolResult
from tests.scenarios.stock import (
    CONTINUABLE,
    chain,
    children,
    continuations,
    endings,
    listener,
    live,
    log,
    notices,
    quiet,
    said_to,
    settled,
    start,
    stock,
    ticks,
    types,
)


async def test_interrupts_need_a_live_ancestor_and_do_nothing_to_who_is_not_here(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        a, b, c = await chain(app, agent, "ABC", model, gate, A=text("heard of B"), B=text("heard of C"))
        model.script("S", hold(gate, text("s")))
        s = await start(app, agent, "S")
        stop = continuations(app).interrupt
        double = Agent(app.host.environment, agent.session, agent.options)
        agent.session.driver = agent
        for target, caller in ((c, double), (SessionId("nobody"), double), (agent.id, agent), (c, live(app, s))):
            with pytest.raises(Unauthorized):
                stop(target, caller)
        with pytest.raises(Unauthorized):
            stop(a, live(app, b))
        assert continuations(app).resident(c) is not None
        before = await log(app, s)
        stop(SessionId("nobody"), agent)
        stop(b, None)
        await live(app, b).wait_idle()
        end = next(event.data for event in await log(app, b) if isinstance(event.data, TurnEnd))
        assert (end.reason, end.cause) == ("aborted", "user")
        stop(c, agent)
        await settled(app, c)
        assert await endings(app, c) == ["aborted"]
        assert await log(app, s) == before
        gate.open()
        await quiet(app, agent)


async def test_an_interrupt_stops_one_turn_and_the_children_of_the_target_go_on(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("A", text("A so far").hold_after(Gate()), text("B has ended"))
    model.script("B", hold(gate, text("b")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        a = await start(app, agent, "A")
        await model.wait_requests(1, "A")
        b = await start(app, live(app, a), "B")
        await gate.wait_reached()
        continuations(app).interrupt(a, agent)
        await live(app, a).wait_idle()
        await ticks()
        assert await endings(app, a) == []
        assert continuations(app).resident(b) is not None
        gate.open()
        await quiet(app, agent)
        assert await endings(app, b) == ["completed"]
        assert len(await notices(app, agent.id)) == 1
        assert types(await log(app, a)).count("turn/start") == 2


async def test_a_target_that_is_taken_down_is_not_cancelled_again(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", text("one"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        live(app, child).scope.push_async_callback(gate.wait)
        await gate.wait_reached()
        continuations(app).interrupt(child, agent)
        gate.open()
        await quiet(app, agent)
        assert await endings(app, child) == ["completed"]


async def test_interrupt_agent_answers_accepted_and_its_refusal_carries_a_code(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script(
        "R",
        calls(call("interrupt_agent", agent_id="nobody")),
        calls(call("interrupt_agent", agent_id=lambda seen: seen.session_id)),
        text("done"),
    )
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        first, second = model.requests("R")[-1].results
        assert not first.startswith("Error")
        errors = [event.data.error for event in await log(app, agent.id) if event.type == "tool/result"]  # type: ignore[union-attr]
        assert [error.code for error in errors if error] == ["UNAUTHORIZED"]
        assert "live ancestor" in second


async def test_stopping_a_parent_mid_turn_leaves_its_children_at_work(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    root = model.script("R", calls(call("subagent", description="C", prompt="P")), text("x").hold_after(Gate()))
    model.script("C", hold(gate, text("one")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await gate.wait_reached()
        await model.wait_requests(2, "R")
        (child,) = await children(app, agent.id)
        agent.cancel(Cause("user"))
        await agent.wait_idle()
        assert continuations(app).resident(child) is not None
        root.add(text("thanks"))
        gate.open()
        await quiet(app, agent)
        assert await endings(app, child) == ["completed"]
        assert "one" in said_to(model.requests("R")[-1])[-1]


async def test_an_interrupt_that_a_crash_cut_off_reaches_its_child_after_the_resume(tmp_path: Path) -> None:
    at_work, asked, never = Gate(), Gate(), Gate()

    async def cut_off(request: ToolRequest, inner: Next[ToolRequest, ToolResult]) -> ToolResult:
        if request.context.name == "interrupt_agent":
            await asked.wait()
        return await inner(request)

    model = ScriptedModel()
    stopping = calls(call("interrupt_agent", agent_id=lambda seen: seen.find(r"Agent (agent-\w+) is at work")))
    model.script("R", calls(call("subagent", description="C", prompt="P")), hold(at_work, stopping))
    model.script("C", hold(never, text("never said")))
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app:
        app.host.chains.tool_call.wrap(cut_off)
        agent = await app.agent(label="R", id="root")
        await agent.follow_up("go").wait()
        await never.wait_reached()
        at_work.open()
        await asked.wait_reached()

    again = ScriptedModel()
    again.script("root", text("stopped"), optional(text("noted")))
    again.script("C", optional(hold(never, text("never said"))))
    async with stock(again, tmp_path, *CONTINUABLE) as app:
        run = await app.resume("root")
        await quiet(app, run.agent)
        (child,) = await children(app, run.agent.id)
        assert await endings(app, child) == ["aborted"]
        assert "was asked to stop" in again.requests("root")[0].results[-1]


async def test_whoever_interrupts_is_told_whom_the_notice_of_it_reaches(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        a, b = await chain(app, agent, "AB", model, gate, A=text("heard of B"))
        stops = [call("interrupt_agent", agent_id=id) for id in (b, a)]
        model.script("R", calls(*stops), *[optional(text("noted"))] * 3)
        await agent.follow_up("stop them").wait()
        await quiet(app, agent)
        deep, own = model.requests("R")[1].results
        assert deep.endswith("The agent that started it is told how it ended.")
        assert own.endswith("Its notice says how it ended.")
        gate.open()
