"""Continuable children over the stock composition: scenarios C01, C05, C16, C17 and their kind."""

from __future__ import annotations

from pathlib import Path

from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, text
from tests.scenarios.stock import CONTINUABLE, children, continuations, log, quiet, said_to, stock, types


async def test_c01_an_omitted_flag_returns_an_id_before_the_child_has_spoken(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("R", calls(call("subagent", description="scan", prompt="P")), text("working"), text("final: seen"))
    model.script("scan", hold(gate, text("CHILD ANSWER")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        request = await model.wait_requests(2, "R")
        (child,) = await children(app, agent.id)
        result = request.messages[-1]
        assert child in str(result)
        assert "CHILD ANSWER" not in str(result)
        outline = types(await log(app, child))
        assert outline.index("subagent/descriptor") < outline.index("turn/start")
        gate.open()
        await quiet(app, agent)
        last = model.requests("R")[-1]
        (notice,) = [said for said in said_to(last) if child in said]
        assert "CHILD ANSWER" in notice.splitlines()
        assert types(await log(app, child))[-1] == "subagent/settled"
    assert len(model.requests("R")) == 3


async def test_c05_a_report_that_is_accepted_while_the_parent_streams_joins_the_same_turn(tmp_path: Path) -> None:
    model, gate, reported = ScriptedModel(), Gate(), Gate()
    model.script(
        "R",
        calls(call("subagent", description="C", prompt="P")),
        hold(gate, text("thinking")),
        text("used it"),
    )
    model.script("C", calls(call("report", output="FINDING")), hold(reported, text("bye")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await model.wait_requests(2, "C")
        await model.wait_requests(2, "R")
        reported.open()
        (child,) = await children(app, agent.id)
        await continuations(app).wait_settled(child)
        gate.open()
        await quiet(app, agent)
        seen = [said_to(request) for request in model.requests("R")]
        assert not any("FINDING" in said for said in seen[1])
        report, notice = seen[2][-2:]
        assert "FINDING" in report
        assert "bye" in notice
        assert types(await log(app, agent.id)).count("turn/start") == 1


async def test_c16_an_interrupt_with_nothing_queued_settles_the_child_as_stopped(tmp_path: Path) -> None:
    model, never = ScriptedModel(), Gate()
    root = model.script("R", calls(call("subagent", description="C", prompt="P")), text("started"))
    c = model.script("C", text("so far").hold_after(never))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await never.wait_reached()
        await agent.wait_idle()
        (child,) = await children(app, agent.id)
        root.add(calls(call("interrupt_agent", agent_id=child)), text("stopping"), text("noted"))
        await agent.follow_up("stop it").wait()
        await quiet(app, agent)
        notice = next(said for said in said_to(model.requests("R")[-1]) if "[notice]" in said)
        assert "was stopped before it finished" in notice
        assert "so far" in notice
        root.add(calls(call("send_message", subagent_id=child, message="again")), text("sent"), text("ok"))
        c.add(text("went on"))
        await agent.follow_up("go on with it").wait()
        await quiet(app, agent)
        assert "so far" in str(model.requests("C")[-1].messages)
        outline = types(await log(app, child))
        assert outline.count("subagent/activation") == outline.count("subagent/settled") == 2


async def test_c17_an_interrupt_parks_what_is_queued_and_the_next_message_runs_it_in_order(tmp_path: Path) -> None:
    model, never = ScriptedModel(), Gate()
    root = model.script("R", calls(call("subagent", description="C", prompt="A")), text("started"))
    c = model.script("C", hold(never, text("never")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await never.wait_reached()
        (child,) = await children(app, agent.id)
        root.add(
            calls(
                call("send_message", subagent_id=child, message="B"),
                call("send_message", subagent_id=child, message="D"),
                call("interrupt_agent", agent_id=child),
            ),
            text("asked"),
            text("noted"),
        )
        await agent.follow_up("queue and stop").wait()
        await quiet(app, agent)
        assert len(model.requests("C")) == 1
        notice = next(said for said in said_to(model.requests("R")[-1]) if "[notice]" in said)
        assert "2 messages are still queued" in notice
        assert "send_message resumes it" in notice
        rows = [(row.state, row.parked, row.delivery.kind) for row in await app.host.sessions.store.read_rows(child)]
        parked = ("pending", True, "message")
        assert rows == [("claimed", False, "message"), parked, parked, ("claimed", False, "interrupt")]
        root.add(
            calls(call("list_agents")),
            calls(call("send_message", subagent_id=child, message="E")),
            text("sent"),
            text("all done"),
        )
        c.add(text("b"), text("d"), text("e"))
        await agent.follow_up("resume it").wait()
        await quiet(app, agent)
        assert "[ready]" in str(model.requests("R")[-3].messages[-1])
        order = [said_to(request)[-1] for request in model.requests("C")[1:]]
        assert order == ["B", "D", "E"]
        assert types(await log(app, child)).count("subagent/settled") == 2
