"""Reports: who can send them, how they reach a parent in every state of it, and that they come before the settlement.

Scenarios C07 and C09.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import retinue
from retinue.agent.agent import Agent
from retinue.agent.phase import Cause
from retinue.base.ids import SessionId
from retinue.compose.app import App
from retinue.errors import AgentBusy, ConfigError, DuplicateName, MissingSeam
from retinue.plugins import report
from retinue.session.events import SandboxMode, ToolReturned, UserMessage
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, optional, text
from retinue.tools.function import tool
from retinue.tools.tool import CallKey, ToolContext
from tests.scenarios.stock import (
    CONTINUABLE,
    children,
    continuations,
    listener,
    live,
    log,
    noop,
    quiet,
    rows,
    said_to,
    settled,
    start,
    stock,
    ticks,
    types,
)


def kinds(said: list[str]) -> list[str]:
    """What each message is: by its first words."""
    return [said.split("]")[0].removeprefix("[") if said.startswith("[") else said for said in said]


async def delegate(app: App, agent: Agent, gate: Gate) -> SessionId:
    """A child that stands at the gate, started in a turn of the root that has ended."""
    await agent.follow_up("go").wait()
    await gate.wait_reached()
    await agent.wait_idle()
    (child,) = await children(app, agent.id)
    return child


async def test_c07_a_report_and_a_settlement_during_maintenance_open_one_turn_after_it(tmp_path: Path) -> None:
    model, gate, maintenance = ScriptedModel(), Gate(), Gate()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("started"), text("read both"))
    model.script("C", hold(gate, calls(call("report", output="R1"))), text("T"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await delegate(app, agent, gate)
        app.host.start(lambda: agent.run_maintenance(maintenance.wait))
        await maintenance.wait_reached()
        gate.open()
        await settled(app, child)
        await ticks()
        assert agent.status == "idle"
        assert len(model.requests("R")) == 2
        maintenance.open()
        await quiet(app, agent)
        said, notice = said_to(model.requests("R")[2])[-2:]
        assert "R1" in said
        assert "T" in notice.splitlines()
        assert kinds([said, notice]) == ["report", "notice"]
        assert types(await log(app, agent.id)).count("turn/start") == 2


async def test_c07_a_mailbox_that_is_cleared_during_maintenance_opens_no_turn(tmp_path: Path) -> None:
    model, gate, maintenance = ScriptedModel(), Gate(), Gate()
    root = model.script("R", calls(call("subagent", description="C", prompt="P")), text("started"))
    model.script("C", hold(gate, calls(call("report", output="R1"))), text("T"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await delegate(app, agent, gate)

        async def maintain() -> None:
            with pytest.raises(AgentBusy):
                await agent.run_maintenance(maintenance.wait)

        app.host.start(maintain)
        await maintenance.wait_reached()
        gate.open()
        await settled(app, child)
        agent.cancel(Cause("user"))
        await quiet(app, agent)
        await ticks()
        assert len(model.requests("R")) == 2
        root.add(text("now I see"), text("and this"))
        await agent.follow_up("and?").wait()
        await quiet(app, agent)
        assert kinds(said_to(model.requests("R")[2])[-2:]) == ["report", "notice"]
        assert kinds(said_to(model.requests("R")[3])[-1:]) == ["and?"]


async def test_c09_quiet_reports_wake_nobody_and_are_read_before_the_settlement(tmp_path: Path) -> None:
    model, gate, end = ScriptedModel(), Gate(), Gate()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("started"), text("read all"))
    model.script(
        "C", hold(gate, calls(call("report", output="Q1"), call("report", output="Q2"))), hold(end, text("bye"))
    )
    async with stock(model, tmp_path, *CONTINUABLE, "plugins.report.report_delivery=quiet") as app:
        agent = await app.agent(label="R")
        child = await delegate(app, agent, gate)
        gate.open()
        await end.wait_reached()
        await ticks()
        assert agent.status == "idle"
        assert len(model.requests("R")) == 2
        assert [row.delivery.target for row in agent.session.mailbox.next_step] == ["next-step"] * 2
        end.open()
        await settled(app, child)
        await quiet(app, agent)
        assert len(model.requests("R")) == 3
        first, second, notice = said_to(model.requests("R")[2])[-3:]
        assert "Q1" in first
        assert "Q2" in second
        assert notice.startswith("[notice]")


@pytest.mark.parametrize("wrong", ["wakeup", "loud", "null"])
async def test_c09_any_other_delivery_of_reports_is_refused_at_load(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError, match="report_delivery"):
        async with stock(ScriptedModel(), tmp_path, *CONTINUABLE, f"plugins.report.report_delivery={wrong}"):
            pass


async def test_reports_without_delegation_are_refused_at_load(tmp_path: Path) -> None:
    with pytest.raises(MissingSeam, match="report"):
        async with stock(
            ScriptedModel(), tmp_path, "plugins.subagent=null", "plugins.agents=null", "plugins.report={}"
        ):
            pass


async def test_only_a_continuable_child_sees_the_report_tool_and_its_section(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script(
        "R",
        calls(call("subagent", description="O", prompt="P", run_in_background=False)),
        calls(call("subagent", description="C", prompt="P")),
        text("started"),
        optional(text("noted")),
    )
    model.script("O", text("once"))
    model.script("C", hold(gate, text("bye")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await delegate_both(agent, gate)
        before = model.requests("R")[0]
        gate.open()
        await quiet(app, agent)
        child, once = model.requests("C")[0], model.requests("O")[0]
        assert "report" in child.tool_names
        assert "Deliver your result" in child.system
        for request in (*model.requests("R"), once):
            assert "report" not in request.tool_names
            assert "Deliver your result" not in request.system
        assert all((r.system, r.tool_names) == (before.system, before.tool_names) for r in model.requests("R"))
        text_of_tool = next(spec.description for spec in child.tools if spec.name == "report")
        for duty in ("self-contained", "direct parent", "think before you send it twice"):
            assert duty in text_of_tool
        for duty in ("before you finish", "once", "self-contained", "closing remark", "earlier", "does not end your"):
            assert duty in child.system


async def delegate_both(agent: Agent, gate: Gate) -> None:
    await agent.follow_up("go").wait()
    await gate.wait_reached()
    await agent.wait_idle()


async def test_a_report_needs_the_exact_child_and_a_tree_that_is_not_drained(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", hold(gate, text("bye")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = live(app, await start(app, agent))
        its_tool = child.tools.get("report")
        assert its_tool is not None
        key = CallKey(session_id=child.id, seq=0, index=0)
        double = Agent(app.host.environment, child.session, child.options)
        child.session.driver = child

        async def code(caller: Agent | None) -> str:
            context = ToolContext(caller=caller, key=key, name="report", call_id="1", turn=1, step=1)
            try:
                await its_tool.body(context, {"output": "x"})
            except retinue.RetinueError as error:
                return error.code
            return "accepted"

        assert [await code(who) for who in (agent, None, double)] == ["UNAUTHORIZED"] * 3
        assert await code(child) == "accepted"
        child.close_admission()
        assert await code(child) == "ACTIVATION_CLOSING"
        gate.open()
        await child.wait_idle()
        await continuations(app).drain_below(agent)
        assert await code(child) == "UNAUTHORIZED"


async def test_reports_over_the_limit_of_a_turn_wake_nobody_and_the_result_says_so(tmp_path: Path) -> None:
    model, gate, maintenance = ScriptedModel(), Gate(), Gate()
    listener(model)
    three = [call("report", output=f"number {i}") for i in range(3)]
    model.script("C", hold(gate, calls(*three)), text("bye"))
    async with stock(model, tmp_path, *CONTINUABLE, "plugins.report.max_per_turn=2") as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await gate.wait_reached()
        app.host.start(lambda: agent.run_maintenance(maintenance.wait))
        gate.open()
        await settled(app, child)
        reports = [row.delivery for row in await rows(app, agent.id)][:3]
        assert [delivery.wake for delivery in reports] == [True, True, False]
        assert "wake nobody" in model.requests("C")[1].results[2]
        assert "wake nobody" not in model.requests("C")[1].results[1]
        maintenance.open()
        await quiet(app, agent)
        assert len(model.requests("R")) == 1
        assert kinds(said_to(model.requests("R")[0])) == ["report", "report", "report", "notice"]


async def test_a_report_names_its_message_and_its_sender_and_stays_after_the_child(tmp_path: Path) -> None:
    model = ScriptedModel()
    listener(model)
    model.script("C", calls(call("report", output="the finding")), text("bye"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await quiet(app, agent)
        result = next(event.data for event in await log(app, child) if isinstance(event.data, ToolReturned))
        assert result.meta is not None
        entered = [event.data for event in await log(app, agent.id) if isinstance(event.data, UserMessage)]
        found = next(message for message in entered if message.source.kind == "subagent-report")
        assert found.id == result.meta["message_id"]
        assert (found.source.form, found.source.sender_session_id) == ("relay", child)
        assert "turn/end" in types(await log(app, child))
        assert len(model.requests("C")) == 2, "reporting does not end the turn"


async def test_a_report_to_a_parent_whose_turn_was_aborted_gets_its_own_turn_before_the_settlement(
    tmp_path: Path,
) -> None:
    model, gate, stuck, slow = ScriptedModel(), Gate(), Gate(), Gate()
    root = model.script("R", text("never").hold_after(stuck))
    model.script("C", hold(gate, calls(call("report", output="R1"))), text("T"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:

        async def reluctant(attempt, inner):  # type: ignore[no-untyped-def]
            import anyio

            try:
                await inner(attempt)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await slow.wait()
                raise

        agent = await app.agent(label="R")
        child = await start(app, agent)
        undo = agent.chains.model_request.wrap(reluctant)
        await agent.follow_up("think").wait()
        await stuck.wait_reached()
        agent.cancel(Cause("user"), keep_mailbox=True)
        await slow.wait_reached()
        gate.open()
        await settled(app, child)
        assert [row.delivery.target for row in agent.session.mailbox.next_turn] == ["next-turn"] * 2
        root.add(text("report read"), text("notice read"))
        undo()
        slow.open()
        await quiet(app, agent)
        assert kinds(said_to(model.requests("R")[1])[-1:]) == ["report"]
        assert kinds(said_to(model.requests("R")[2])[-1:]) == ["notice"]


async def test_a_report_to_an_idle_parent_opens_a_turn_and_the_settlement_follows(tmp_path: Path) -> None:
    model, gate, end = ScriptedModel(), Gate(), Gate()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("started"), text("one"), text("two"))
    model.script("C", hold(gate, calls(call("report", output="R1"))), hold(end, text("T")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await delegate(app, agent, gate)
        gate.open()
        await model.wait_requests(3, "R")
        await agent.wait_idle()
        end.open()
        await quiet(app, agent)
        assert [kinds(said_to(request)[-1:]) for request in model.requests("R")[2:]] == [["report"], ["notice"]]


async def test_a_report_of_a_grandchild_goes_to_its_parent_alone_and_keeps_that_one_here(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("started"), text("noted"))
    mine = [calls(call("subagent", description="G", prompt="Q")), text("waiting"), text("on"), optional(text("more"))]
    model.script("C", *mine)
    model.script("G", calls(call("report", output="deep")), text("bye"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await quiet(app, agent)
        assert not any("deep" in said for request in model.requests("R") for said in said_to(request))
        assert any("deep" in said for said in said_to(model.requests("C")[-1]))
        (child,) = await children(app, agent.id)
        assert types(await log(app, child)).count("subagent/settled") == 1


async def test_a_report_asks_for_no_approval_and_the_policy_of_a_child_stays(tmp_path: Path) -> None:
    model = ScriptedModel()
    listener(model)
    model.script("C", calls(call("report", output="x")), text("bye"))
    async with stock(model, tmp_path, *CONTINUABLE, "permission=read-only") as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await quiet(app, agent)
        assert "Reported as message" in model.requests("C")[1].results[0]
        assert sum(isinstance(event.data, SandboxMode) for event in await log(app, child)) <= 1


async def test_when_the_report_tool_cannot_be_added_its_section_is_taken_back_and_the_start_fails(
    tmp_path: Path,
) -> None:
    model = ScriptedModel()
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        sections: list[list[str]] = []

        @tool(name="report")
        async def impostor() -> str:
            """Stands where the report should."""
            return ""

        async def occupied(child: Agent) -> None:
            if child.label == "C":
                child.tools.add(impostor)
                child.scope.callback(
                    lambda: sections.append([s.name for s in child.prompt.sections if s.name == "tool:report"])
                )

        app.host.agents.on_setup(occupied)
        with pytest.raises(DuplicateName):
            await start(app, agent)
        assert sections == [[]]
        assert await children(app, agent.id) == []


async def test_taking_reports_away_takes_the_tool_and_the_section_from_children_at_work(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", hold(gate, calls(call("noop"))), text("bye"))
    async with stock(model, tmp_path, *CONTINUABLE[:1], "plugins.report=null", tools=[noop]) as app:
        agent = await app.agent(label="R")
        async with report.plugin(app.host, report.ReportConfig()):
            await start(app, agent)
            await gate.wait_reached()
        gate.open()
        await quiet(app, agent)
        first, second = model.requests("C")
        assert "report" in first.tool_names
        assert "report" not in second.tool_names
        assert "Deliver your result" not in second.system


async def test_an_empty_report_is_refused_and_wakes_nobody(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("C", calls(call("report", output=" \n")), text("done"))
    model.script("R", text("noted"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await start(app, agent)
        await quiet(app, agent)
        assert model.requests("C")[1].results == ("Error: output: must say something; it is empty",)
        assert [row.delivery.message.source.kind for row in await rows(app, agent.id)] == ["subagent-settled"]
