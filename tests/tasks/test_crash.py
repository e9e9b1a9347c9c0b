"""Tasks do not survive their process: the log of a loaded session says so, once, and so does a notice."""

import pytest

from retinue.agent.registry import Creation
from retinue.base.ids import SessionId
from retinue.errors import Unauthorized
from retinue.model.content import text_of
from retinue.session.events import SessionHeader
from retinue.session.store import SessionStore
from retinue.tasks.history import unfinished
from retinue.tasks.notices import DIED
from retinue.tasks.record import Completed
from retinue.testing.clock import FakeClock
from retinue.testing.faults import FaultyStore
from retinue.testing.host import start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from tests.support.stores import OpenStore
from tests.tasks.work import Work, begin, drained, notices, task_lines, tasks_host

ID = SessionId("session-1")


async def _crash(open_store: OpenStore, clock: FakeClock, *labels: str) -> None:
    """A process that ended while tasks with these labels ran."""
    async with tasks_host(store=open_store(clock), clock=clock, at_rest=False) as (host, tasks):
        agent = await start_agent(host, id=ID)
        for label in labels:
            begin(tasks, Work(), agent, label=label)
        await host.sessions.writer.committed()


async def test_tk04_a_loaded_session_is_told_of_tasks_that_died(open_store: OpenStore, clock: FakeClock) -> None:
    await _crash(open_store, clock, "one", "two")
    model = ScriptedModel(text("I see"))
    async with tasks_host(model, store=open_store(clock), clock=clock) as (host, tasks):
        agent = await host.agents.resume(ID, options=host.options.options)
        assert task_lines(agent.session.events) == [
            "bash-1 started",
            "bash-2 started",
            f"bash-1 failed: {DIED}",
            f"bash-2 failed: {DIED}",
        ]
        await agent.wait_idle()
        seen = model.requests()[0].users
        assert len(seen) == 2, "both notices share one turn"
        assert "`bash-1` (bash: one)" in seen[0]
        assert "died with the process" in seen[0]
        with pytest.raises(Exception, match="is over"):
            tasks.get("bash-1", ID)


async def test_tk04_loading_again_tells_nothing_new(open_store: OpenStore, clock: FakeClock) -> None:
    await _crash(open_store, clock, "one")
    for _ in range(2):
        async with tasks_host(store=open_store(clock), clock=clock, completion_delivery="quiet") as (host, _tasks):
            agent = await host.agents.resume(ID, options=host.options.options)
            assert task_lines(agent.session.events) == ["bash-1 started", f"bash-1 failed: {DIED}"]
            assert len(await notices(host, ID)) == 1


async def test_tk04_a_crash_before_the_trace_is_stored_loses_nothing(open_store: OpenStore, clock: FakeClock) -> None:
    await _crash(open_store, clock, "one")
    dying = FaultyStore(open_store(clock))
    dying.die(1)
    async with tasks_host(store=dying, clock=clock, at_rest=False, errors_logged=True) as (host, _):
        await host.agents.resume(ID, options=host.options.options)
        await drained()
    async with tasks_host(store=open_store(clock), clock=clock, completion_delivery="quiet") as (host, _):
        agent = await host.agents.resume(ID, options=host.options.options)
        assert task_lines(agent.session.events) == ["bash-1 started", f"bash-1 failed: {DIED}"]
        assert len(await notices(host, ID)) == 1


async def test_tk04_the_notice_joins_the_message_that_a_resume_brings(open_store: OpenStore, clock: FakeClock) -> None:
    await _crash(open_store, clock, "one")
    model = ScriptedModel(text("both"))
    async with tasks_host(model, store=open_store(clock), clock=clock) as (host, _):
        agent = await host.agents.resume(ID, options=host.options.options)
        agent.follow_up("go on")
        await agent.wait_idle()
        assert len(model.requests()) == 1
        assert model.requests()[0].users[-1] == "go on"


async def test_tk04_quiet_delivery_wakes_nobody(open_store: OpenStore, clock: FakeClock) -> None:
    await _crash(open_store, clock, "one")
    async with tasks_host(store=open_store(clock), clock=clock, completion_delivery="quiet") as (host, _):
        agent = await host.agents.resume(ID, options=host.options.options)
        assert agent.status == "idle"
        (row,) = await notices(host, ID)
        assert (row.state, row.delivery.wake, row.delivery.target) == ("pending", False, "next-step")


async def test_tk04_a_task_that_ended_in_time_has_one_end_and_one_notice(
    open_store: OpenStore, clock: FakeClock
) -> None:
    async with tasks_host(store=open_store(clock), clock=clock, at_rest=False, completion_delivery="quiet") as (
        host,
        tasks,
    ):
        agent, work = await start_agent(host, id=ID), Work()
        begin(tasks, work, agent)
        work.end(Completed("x"))
        await drained()
        await host.sessions.writer.committed()
    async with tasks_host(store=open_store(clock), clock=clock, completion_delivery="quiet") as (host, _):
        agent = await host.agents.resume(ID, options=host.options.options)
        assert task_lines(agent.session.events) == ["bash-1 started", "bash-1 completed"]
        (row,) = await notices(host, ID)
        assert "completed" in text_of(row.delivery.message.content)


@pytest.mark.parametrize("batch", range(1, 8))
async def test_at_every_crash_point_there_is_one_end_and_one_notice(
    open_store: OpenStore, clock: FakeClock, batch: int
) -> None:
    dying = FaultyStore(open_store(clock))
    dying.die(batch)
    model = ScriptedModel()
    model.script("R", text("noted"), text("noted"), every=True)
    async with tasks_host(model, store=dying, clock=clock, at_rest=False, errors_logged=True) as (host, tasks):
        try:
            agent, work = await start_agent(host, id=ID), Work()
            begin(tasks, work, agent)
            await drained()
            work.end(Completed("x"))
            await drained()
        except Exception:
            assert dying.is_dead
    model = ScriptedModel()
    model.script(ID, text("noted"), text("noted"), every=True)
    async with tasks_host(model, store=open_store(clock), clock=clock) as (host, _):
        if await host.sessions.store.summary(ID) is None:
            return
        agent = await host.agents.resume(ID, options=host.options.options)
        await agent.wait_idle()
        lines = task_lines(agent.session.events)
        rows = await notices(host, ID)
        assert len(lines) == 2 * len(rows)
        assert all(row.state == "claimed" for row in rows)


async def test_a_copied_log_does_not_make_its_tasks_the_copys(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        parent = await start_agent(host, id=ID)
        begin(tasks, Work(), parent)
        seed = list(parent.session.events)
        header = SessionHeader(id=SessionId("copy"), created_at=0, parent_session=ID, seed_length=len(seed))
        copy = await host.agents.create(Creation(header=header, options=parent.options, root=ID, seed=seed))
        assert unfinished(copy.session.events) == []
        assert await notices(host, copy.id) == []
        with pytest.raises(Unauthorized, match="another agent"):
            tasks.get("bash-1", copy.id)
        assert begin(tasks, Work(), copy).id == "bash-2", "ids of the copied transcript are never given again"
        await host.agents.dispose(copy)
        again = await host.agents.resume(copy.id)
        assert task_lines(again.session.events)[-1].startswith("bash-2 killed")
        assert await notices(host, copy.id) == []


async def test_a_cut_off_reading_is_made_again_and_says_that_the_task_died(
    open_store: OpenStore, clock: FakeClock
) -> None:
    model = ScriptedModel(calls(call("task_output", task_id="bash-1", wait=True)))
    async with tasks_host(model, store=open_store(clock), clock=clock, at_rest=False) as (host, tasks):
        agent = await start_agent(host, id=ID)
        begin(tasks, Work(obeys=False), agent)
        agent.follow_up("go")
        await clock.wait_sleeping(30)
        await host.sessions.writer.committed()
        host.agents.suspend()
    model = ScriptedModel(text("it died"))
    async with tasks_host(model, store=open_store(clock), clock=clock) as (host, _):
        agent = await host.agents.resume(ID, options=host.options.options)
        await agent.wait_idle()
        (result,) = model.requests()[0].results
        assert "is over (failed, it died with the process that ran it)" in result
