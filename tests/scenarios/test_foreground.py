"""Delegations that wait, and the order of calls in one message. Scenarios C02 and C04."""

from __future__ import annotations

from pathlib import Path

from retinue.agent.agent import Agent
from retinue.errors import StoreFailure
from retinue.session.events import ToolReturned
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, optional, text
from tests.scenarios.stock import (
    CONTINUABLE,
    Lifecycle,
    children,
    log,
    notices,
    quiet,
    rows,
    settled,
    start,
    stock,
    ticks,
    types,
)

WAIT = {"prompt": "P", "run_in_background": False}


async def test_c02_an_explicit_false_waits_and_leaves_no_agent_no_notice_and_no_report(tmp_path: Path) -> None:
    model = ScriptedModel()
    root = model.script("R", calls(call("subagent", description="C", **WAIT)), text("done"))
    model.script("C", text("ANSWER"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        request = await model.wait_requests(2, "R")
        (child,) = await children(app, agent.id)
        assert app.host.agents.list() == (agent,)
        assert request.results == ("ANSWER",)
        await agent.wait_idle()
        assert await notices(app, agent.id) == []
        assert "report" not in model.requests("C")[0].tool_names
        root.add(calls(call("send_message", subagent_id=child, message="hi")), text("I see"))
        await agent.follow_up("message it").wait()
        await agent.wait_idle()
        result = [event.data for event in await log(app, agent.id) if isinstance(event.data, ToolReturned)][-1]
        assert result.error is not None
        assert result.error.code == "NOT_RESUMABLE"
        assert "do not retry" in result.error.message


async def broken_scope(agent: Agent) -> None:
    async def close() -> None:
        raise ValueError("the scratch folder stayed")

    if agent.label == "C":
        agent.scope.push_async_callback(close)


async def test_c02_when_the_run_and_its_cleanup_fail_the_error_shows_both_the_run_first(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("subagent", description="C", **WAIT)), text("done"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:

        async def failing(agent: Agent) -> None:
            async def layer(step, inner):  # type: ignore[no-untyped-def]
                agent.session.drop(StoreFailure("the disk is gone"))
                return await inner(step)

            if agent.label == "C":
                agent.chains.pre_step.wrap(layer)

        undo = app.host.agents.on_setup(failing)
        app.host.agents.on_setup(broken_scope)
        agent, lifecycle = await app.agent(label="R"), Lifecycle(app)
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        (result,) = model.requests("R")[1].results
        assert result.startswith("Error: ")
        assert 0 < result.index("the disk is gone") < result.index("the scratch folder stayed")
        assert [what for what, _ in lifecycle.seen] == ["start", "end"]
        assert app.host.agents.list() == (agent,)
        (child,) = await children(app, agent.id)
        undo()
        model.script("C", text("late"))
        again = await app.host.agents.resume(child)  # its prompt was not lost
        await again.wait_idle()


async def test_c02_when_only_the_cleanup_fails_the_result_is_an_error(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("subagent", description="C", **WAIT)), text("done"))
    model.script("C", text("ANSWER"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        app.host.agents.on_setup(broken_scope)
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        (result,) = model.requests("R")[1].results
        assert result.startswith("Error: ")
        assert "the scratch folder stayed" in result
        assert app.host.agents.list() == (agent,)


async def test_c04_safe_calls_overlap_exclusive_ones_are_barriers_and_results_keep_the_models_order(
    tmp_path: Path,
) -> None:
    model, gate, last = ScriptedModel(), Gate(), Gate()
    root = model.script("R")
    old = model.script("old", text("first"))
    model.script("A", hold(gate, text("a")))
    model.script("B", text("b"))
    model.script("D", hold(last, text("d")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        root.add(text("old is done"))
        child = await start(app, agent, "old")
        await quiet(app, agent)
        old.add(text("second"))
        root.add(
            calls(
                call("subagent", description="A", **WAIT),
                call("subagent", description="B", **WAIT),
                call("send_message", subagent_id=child, message="more"),
                call("subagent", description="D", **WAIT),
            ),
            text("ok"),
        )
        lifecycle = Lifecycle(app)
        await agent.follow_up("all at once").wait()
        await gate.wait_reached()
        while [what for what, _ in lifecycle.seen].count("end") < 1:
            await ticks(1)
        await ticks()
        assert len(await rows(app, child)) == 1, "the message waits for both"
        assert model.requests("D") == ()
        gate.open()
        await last.wait_reached()
        assert len(await rows(app, child)) == 2, "D starts when the message is accepted"
        await settled(app, child)
        last.open()
        await quiet(app, agent)
        a, b, message, d = model.requests("R")[2].results[-4:]
        assert (a, b, d) == ("a", "b", "d")
        assert "is queued as the next turn" in message
        ended = [event.data.index for event in await log(app, agent.id) if isinstance(event.data, ToolReturned)]
        assert ended == [1, 0, 2, 3]


async def test_after_a_resume_a_waiting_call_waits_for_what_its_child_has_started(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("R", calls(call("subagent", description="F", **WAIT)), text("done"))
    model.script("F", calls(call("subagent", description="D", prompt="P")), text("F waits"), text("F KNOWS"))
    model.script("D", optional(hold(gate, text("D ANSWERS"))), text("D ANSWERS"))
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await model.wait_requests(2, "F")
        await gate.wait_reached()
        await ticks()
        assert types(await log(app, (await children(app, agent.id))[0]))[-1] == "turn/end"
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        run = await app.resume(agent.id)
        await run.result()
        request = model.requests(agent.id)[-1]
        assert request.results == ("F KNOWS",)
        assert "D ANSWERS" in model.requests("F")[-1].text
