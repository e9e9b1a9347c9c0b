"""Completion notices: what they say, when they wake, and that each comes once and is read."""

from typing import Any

import pytest

from retinue.agent.agent import Agent
from retinue.agent.phase import Cause
from retinue.base.ids import SessionId
from retinue.compose.keys import read_options
from retinue.errors import BadInput, ConfigError
from retinue.host.host import Host
from retinue.model.content import text_of
from retinue.plugins.tasks import OPTIONS
from retinue.session.rows import StoredRow
from retinue.session.store import SessionStore
from retinue.tasks.notices import Notices
from retinue.tasks.record import Completed, Failed, TaskSnapshot
from retinue.tasks.runtime import Tasks
from retinue.tasks.wording import notice_text
from retinue.testing.gate import Gate
from retinue.testing.host import start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, fail, hold, text
from tests.support.logs import outline
from tests.support.tools import gated
from tests.tasks.work import Ends, Work, begin, notices, tasks_host


def snapshot(**facts: Any) -> TaskSnapshot:
    return TaskSnapshot(
        **{"id": "bash-1", "kind": "bash", "label": "build it", "status": "completed", "started_at": 0} | facts
    )


async def finish(host: Host, tasks: Tasks, owner: Agent | None) -> None:
    """One more task of that owner begins and ends."""
    ends, work = Ends(host), Work()
    begin(tasks, work, owner)
    work.end(Completed("x"))
    await ends.wait()


def shown(row: StoredRow) -> str:
    return text_of(row.delivery.message.content)


async def test_tt12_tt13_a_notice_names_the_task_and_what_to_do(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work()
        begin(tasks, work, agent, label="build\nit " + "x" * 500)
        work.end(Failed("exit code: 2"))
        await ends.wait()
        (row,) = await notices(host, agent.id)
        for part in ("`bash-1`", "(bash: build it xxx", "failed, exit code: 2", "`task_output`"):
            assert part in shown(row)
        source = row.delivery.message.source
        assert (source.kind, source.plugin, source.form) == ("plugin", "tool-tasks", "notice")
        assert source.summary is not None
        assert source.summary.startswith("bash-1 failed: build it xx")
        assert len(source.summary) <= 120
        assert "\n" not in source.summary


@pytest.mark.parametrize("limit", [1, 40, 70, 100, 115, 120, 150, 1000])
def test_tt12_under_a_byte_limit_id_and_instruction_survive(limit: int) -> None:
    said = notice_text(snapshot(label="ü" * 100, detail="because", output_limit=limit))
    assert "`bash-1`" in said
    assert "`task_output`" in said
    assert len(said.encode()) <= max(limit, len("`bash-1` completed: read it with `task_output`."))


async def test_tt14_no_notice_without_an_owner(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent = await start_agent(host)
        await finish(host, tasks, None)
        assert await notices(host, agent.id) == []


@pytest.mark.parametrize("status", ["completed", "killed", "failed"])
async def test_tt14_every_unreported_end_gives_one_notice(store: SessionStore, status: str) -> None:
    from retinue.tasks.record import Killed

    outcome = {"completed": Completed(), "killed": Killed(), "failed": Failed("x")}[status]
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work()
        begin(tasks, work, agent)
        work.end(outcome)
        await ends.wait()
        (row,) = await notices(host, agent.id)
        assert status in shown(row)


async def test_tt15_quiet_never_wakes(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent = await start_agent(host)
        await finish(host, tasks, agent)
        assert agent.status == "idle"
        (row,) = await notices(host, agent.id)
        assert (row.state, row.delivery.target, row.delivery.wake) == ("pending", "next-step", False)


async def test_tt16_an_idle_owner_gets_a_turn(store: SessionStore) -> None:
    model = ScriptedModel(text("thanks"))
    async with tasks_host(model, store=store) as (host, tasks):
        agent = await start_agent(host)
        await finish(host, tasks, agent)
        await agent.wait_idle()
        (row,) = await notices(host, agent.id)
        assert (row.state, row.delivery.target, row.delivery.wake) == ("claimed", "next-turn", True)
        assert model.requests()[0].new == (shown(row),)


async def test_tt16_tasks_that_settle_together_cost_a_busy_owner_one_step(store: SessionStore) -> None:
    gate = Gate()
    model = ScriptedModel(calls(call("slow")), text("all three seen"))
    async with tasks_host(model, store=store, tools=[gated("slow", gate)]) as (host, tasks):
        agent = await start_agent(host)
        agent.follow_up("go")
        await gate.wait_reached()
        for _ in range(3):
            await finish(host, tasks, agent)
        gate.open()
        await agent.wait_idle()
        assert len(model.requests()) == 2
        assert [f"`bash-{n}`" in seen for n, seen in enumerate(model.requests()[1].users[1:], 1)] == [True] * 3
        assert all(row.delivery.target == "next-step" for row in await notices(host, agent.id))


async def test_tt16_tasks_that_settle_together_cost_an_idle_owner_one_turn(store: SessionStore) -> None:
    model = ScriptedModel(text("both seen"))
    async with tasks_host(model, store=store) as (host, tasks):
        agent, ends, works = await start_agent(host), Ends(host), [Work(), Work()]
        for work in works:
            begin(tasks, work, agent)
        for work in works:
            work.end(Completed())
        await ends.wait(2)
        await agent.wait_idle()
        assert len(model.requests()) == 1
        assert len(model.requests()[0].users) == 2


async def test_tt17_wakes_in_a_row_are_bounded_and_then_notices_wait(store: SessionStore) -> None:
    model = ScriptedModel(*[text("ok")] * 3)
    async with tasks_host(model, store=store) as (host, tasks):
        agent, other = await start_agent(host), await start_agent(host, "other")
        model.script("other", text("fresh budget"))
        for _ in range(5):
            await finish(host, tasks, agent)
            await agent.wait_idle()
        rows = await notices(host, agent.id)
        assert [row.state for row in rows] == ["claimed"] * 3 + ["pending"] * 2
        assert [row.delivery.wake for row in rows] == [True] * 3 + [False] * 2
        assert rows[-1].delivery.target == "next-step"
        await finish(host, tasks, other)
        await other.wait_idle()


async def test_tt18_a_message_of_the_user_restores_the_budget(store: SessionStore) -> None:
    model = ScriptedModel(*[text("ok")] * 4)
    async with tasks_host(model, store=store, max_consecutive_wakes=1) as (host, tasks):
        agent = await start_agent(host)
        for _ in range(2):
            await finish(host, tasks, agent)
            await agent.wait_idle()
        assert len(model.requests()) == 1
        await agent.follow_up("hello")
        await agent.wait_idle()
        assert len(model.requests()[1].users) == 3, "the quiet notice is read with the user's message"
        for _ in range(2):
            await finish(host, tasks, agent)
            await agent.wait_idle()
        assert len(model.requests()) == 3
        await agent.follow_up("bye")
        await agent.wait_idle()


async def test_tt18_other_messages_do_not_restore_it_and_cost_nothing(store: SessionStore) -> None:
    from retinue.model.content import Source

    model = ScriptedModel(*[text("ok")] * 3)
    async with tasks_host(model, store=store, max_consecutive_wakes=1) as (host, tasks):
        agent = await start_agent(host)
        await finish(host, tasks, agent)
        await agent.wait_idle()
        await agent.follow_up("report", source=Source(kind="subagent-report"))
        await agent.wait_idle()
        await finish(host, tasks, agent)
        await agent.wait_idle()
        assert len(model.requests()) == 2
        await agent.follow_up("hi")
        await agent.wait_idle()


async def test_tt17_notices_read_in_turns_that_others_opened_cost_no_wake(store: SessionStore) -> None:
    gate = Gate()
    model = ScriptedModel(calls(call("slow")), text("seen"), text("woken"))
    async with tasks_host(model, store=store, tools=[gated("slow", gate)], max_consecutive_wakes=1) as (host, tasks):
        agent = await start_agent(host)
        agent.follow_up("go")
        await gate.wait_reached()
        for _ in range(3):
            await finish(host, tasks, agent)
        gate.open()
        await agent.wait_idle()
        await finish(host, tasks, agent)
        await agent.wait_idle()
        assert len(model.requests()) == 3


@pytest.mark.parametrize("budget", [0, -1, 1.5, "3", True])
def test_tt19_the_budget_is_a_whole_number_of_at_least_one(budget: Any) -> None:
    with pytest.raises(ConfigError, match="max_consecutive_wakes"):
        read_options("tasks", {"max_consecutive_wakes": budget}, OPTIONS)
    with pytest.raises(BadInput):
        Notices(max_wakes=budget)


async def test_tt20_an_owner_that_is_being_torn_down_is_not_told_twice_and_not_woken(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent = await start_agent(host)
        ends, work = Ends(host), Work(obeys=False)
        begin(tasks, work, agent)
        agent.close_admission()
        work.end(Completed())
        await ends.wait()
        await host.agents.dispose(agent)
        assert await notices(host, agent.id) == []


async def test_tt21_a_notice_for_a_turn_that_is_interrupted_opens_the_next(store: SessionStore) -> None:
    gate = Gate()
    model = ScriptedModel(hold(gate, text("never")), text("now I see it"))
    async with tasks_host(model, store=store) as (host, tasks):
        agent = await start_agent(host)
        agent.follow_up("go")
        await gate.wait_reached()
        await finish(host, tasks, agent)
        agent.cancel(Cause("user"), keep_mailbox=True)
        await agent.wait_idle()
        (row,) = await notices(host, agent.id)
        assert (row.state, row.turn) == ("claimed", 2)
        assert "`bash-1`" in model.requests()[1].new[-1]


async def test_tt21_a_notice_for_a_turn_that_fails_opens_the_next(store: SessionStore) -> None:
    gate = Gate()
    model = ScriptedModel(hold(gate, fail("auth")), text("now I see it"))
    async with tasks_host(model, store=store) as (host, tasks):
        agent = await start_agent(host)
        agent.follow_up("go")
        await gate.wait_reached()
        await finish(host, tasks, agent)
        gate.open()
        await agent.wait_idle()
        assert [row.state for row in await notices(host, agent.id)] == ["claimed"]


async def test_tt21_a_notice_in_the_instant_before_idle_is_read(store: SessionStore) -> None:
    """Every place in a turn's last steps at which a task can settle; none strands its notice."""
    from retinue.agent.signals import MessageClaimed, StatusChanged

    for place in ("claimed", "stopping", "idle"):
        model = ScriptedModel(text("first"), text("second"))
        async with tasks_host(model) as (host, tasks):
            agent, ends, work = await start_agent(host), Ends(host), Work()
            begin(tasks, work, agent)

            async def stopping(request: Any, inner: Any, work: Work = work, place: str = place) -> None:
                if place == "stopping":
                    work.end(Completed())
                await inner(request)

            def on_claimed(_: object, work: Work = work, place: str = place) -> None:
                if place == "claimed":
                    work.end(Completed())

            def on_status(event: StatusChanged, work: Work = work, place: str = place) -> None:
                if place == "idle" and event.status == "idle":
                    work.end(Completed())

            agent.chains.turn_stopping.wrap(stopping)
            host.bus.on(MessageClaimed, on_claimed)
            host.bus.on(StatusChanged, on_status)
            agent.follow_up("go")
            await ends.wait()
            await agent.wait_idle()
            assert len(agent.session.mailbox) == 0, place
            assert len(model.requests()) == 2, place


async def test_tt21_wakes_that_came_late_count_against_the_budget(store: SessionStore) -> None:
    """A turn that keeps failing cannot be opened for ever by notices that land in it."""
    gates = [Gate(), Gate(), Gate()]
    model = ScriptedModel(*[hold(gate, fail("auth")) for gate in gates], text("at last"))
    async with tasks_host(model, store=store, max_consecutive_wakes=2) as (host, tasks):
        agent = await start_agent(host)
        agent.follow_up("go")
        for gate in gates:
            await gate.wait_reached()
            await finish(host, tasks, agent)
            gate.open()
        await agent.wait_idle()
        rows = await notices(host, agent.id)
        assert [(row.state, row.delivery.wake) for row in rows] == [
            ("claimed", True),
            ("claimed", True),
            ("pending", False),
        ]
        await agent.follow_up("again")
        await agent.wait_idle()
        assert outline(agent.session.events)[-1] == "end 4 completed"


async def test_tt21_stopped_agents_read_it_in_their_next_turn(store: SessionStore) -> None:
    gate = Gate()
    model = ScriptedModel(hold(gate, text("never")), text("both"))
    async with tasks_host(model, store=store) as (host, tasks):
        agent = await start_agent(host)
        agent.follow_up("go")
        await gate.wait_reached()
        await finish(host, tasks, agent)
        agent.cancel(Cause("user"))
        await agent.wait_idle()
        assert [row.state for row in await notices(host, agent.id)] == ["pending"]
        await agent.follow_up("what is new?")
        await agent.wait_idle()
        assert ["`bash-1`" in said for said in model.requests()[1].new] == [False, True, False]


async def test_a_notice_has_the_same_id_for_the_same_task_for_ever(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agents = [await start_agent(host, id=SessionId(id)) for id in ("session-1", "session-2")]
        for agent in agents:
            await finish(host, tasks, agent)
        ids = [row.delivery.id for agent in agents for row in await notices(host, agent.id)]
        assert len(set(ids)) == 2
        again = Notices(delivery="quiet").announce(agents[0], snapshot())
        assert again.id == ids[0]
