"""Tasks end with their owner, and all of them with the runtime."""

import anyio
import pytest

from retinue.agent.agent import Agent
from retinue.agent.signals import AgentDisposed
from retinue.base.ids import SessionId
from retinue.errors import AgentClosing, MissingSeam
from retinue.plugins.tasks import TasksConfig, plugin
from retinue.session.store import SessionStore
from retinue.tasks.record import Completed, TasksChanged
from retinue.tasks.runtime import OWNER_DISPOSED, TASKS, Tasks
from retinue.tasks.surfaces import Surface
from retinue.testing.gate import Gate
from retinue.testing.host import scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import hold, text
from tests.support.stores import OpenStore
from tests.tasks.work import Ends, Work, begin, drained, notices, task_lines, tasks_host


async def test_tk34_the_cleanup_is_on_the_owners_scope_and_there_is_one(store: SessionStore) -> None:
    order: list[str] = []
    async with tasks_host(store=store) as (host, tasks):
        agent = await start_agent(host)
        agent.scope.callback(lambda: order.append(f"below: {len(tasks.list(agent.id))} tasks"))
        for _ in range(3):
            begin(tasks, Work(), agent)
        agent.scope.callback(lambda: order.append(f"above: {len(tasks.list(agent.id))} tasks"))
        await host.agents.dispose(agent)
        assert order == ["above: 3 tasks", "below: 0 tasks"]


async def test_tk35_disposal_stops_every_live_task_and_waits_for_its_end(store: SessionStore) -> None:
    seen: list[tuple[str, ...]] = []
    async with tasks_host(store=store) as (host, tasks):
        agent, ends = await start_agent(host), Ends(host)
        slow, done = Work(obeys=False), Work()
        begin(tasks, slow, agent)
        begin(tasks, done, agent)
        done.end(Completed())
        tasks.read("bash-2", agent.id)
        await tasks.wait("bash-2", agent.id, 1)
        host.bus.on(TasksChanged, lambda _: seen.append(tuple(task.status for task in tasks.list(agent.id))))
        is_gone = False

        async def dispose() -> None:
            nonlocal is_gone
            await host.agents.dispose(agent)
            is_gone = True

        async with anyio.create_task_group() as group:
            group.start_soon(dispose)
            await drained()
            task = tasks.get("bash-1", agent.id)
            assert (task.status, task.is_reported, is_gone) == ("stopping", True, False)
            assert slow.reasons == [OWNER_DISPOSED]
            with pytest.raises(AgentClosing):
                begin(tasks, Work(), agent)
            slow.end(Completed("late"))
        assert is_gone
        assert slow.has_left
        assert [task.id for task in ends.settled] == ["bash-2", "bash-1"]
        assert seen == [("stopping", "completed"), ("completed", "completed"), ()]


async def test_tk36_tasks_that_teardown_stops_give_no_notice_and_have_an_end_in_the_log(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent = await start_agent(host)
        begin(tasks, Work(), agent)
        events = agent.session.events
        await host.agents.dispose(agent)
        assert task_lines(events) == ["bash-1 started", f"bash-1 killed: {OWNER_DISPOSED}"]
        assert await notices(host, agent.id) == []


async def test_tk37_a_cancel_that_fails_leaves_an_orphan_that_is_named(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, ends, broken, fine = await start_agent(host), Ends(host), Work(), Work()
        broken.cancel_error = OSError("no such process")
        begin(tasks, broken, agent)
        begin(tasks, fine, agent)
        await host.agents.dispose(agent)
        failed, killed = sorted(ends.settled, key=lambda task: task.id)
        assert (failed.status, failed.detail) == (
            "failed",
            "may be orphaned: it could not be cancelled: no such process",
        )
        assert killed.status == "killed"
        assert (failed.is_reported, killed.is_reported) == (True, True)
        assert broken.has_left
        assert await notices(host, agent.id) == []


async def test_tk37_a_task_that_does_not_end_is_given_up_after_a_bound(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        tasks, agent, ends, work = (
            Tasks(host, teardown_wait_s=0.01),
            await start_agent(host),
            Ends(host),
            Work(obeys=False),
        )
        tasks.attach(Surface())
        begin(tasks, work, agent)
        await host.agents.dispose(agent)
        assert ends.settled[0].detail == "may be orphaned: it did not end within 0.01 s"
        await drained()
        assert work.has_left


async def test_tk38_closing_the_runtime_ends_all_tasks_and_leaves_agents_alone(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent, works = await start_agent(host), [Work(), Work(), Work()]
        async with plugin(host, TasksConfig()):
            tasks, ends = host.require(TASKS, needed_by="the test"), Ends(host)
            for work, owner in zip(works, (agent, agent, None), strict=True):
                begin(tasks, work, owner)
        assert [task.status for task in ends.settled] == ["killed"] * 3
        assert all(work.has_left for work in works)
        assert await notices(host, agent.id) == []
        assert host.agents.is_live(agent)
        assert tasks.list(agent.id) == ()
        with pytest.raises(MissingSeam):
            begin(tasks, Work(), agent)
        changes = len(ends.changes)
        await host.agents.dispose(agent)
        assert len(ends.changes) == changes, "the cleanup on the agent does nothing any more"


async def test_tk38_the_plugin_takes_everything_back(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        before = (dict(host.tools.view), host.prompt.sections)
        async with plugin(host, TasksConfig()):
            assert {"task_output", "task_list", "task_kill"} <= set(host.tools.view)
        assert (dict(host.tools.view), host.prompt.sections) == before
        assert host.find(TASKS) is None
        async with plugin(host, TasksConfig()):
            pass


async def test_tk38_a_wait_ends_with_the_runtime(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host, anyio.create_task_group() as group:
        agent, got = await start_agent(host), list[str]()
        async with plugin(host, TasksConfig()):
            tasks = host.require(TASKS, needed_by="the test")
            begin(tasks, Work(), agent)

            async def wait() -> None:
                got.append((await tasks.wait("bash-1", agent.id, 100)).status)

            group.start_soon(wait)
            await drained()
        await drained()
        assert got == ["killed"]


async def test_tk39_an_old_owners_cleanup_does_not_touch_a_replacements_tasks(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        old = await start_agent(host, id=SessionId("session-1"))
        stubborn, new_work = Work(obeys=False), Work()
        begin(tasks, stubborn, old)
        replacements: list[Agent] = []

        async def replace() -> None:
            replacements.append(await host.agents.resume(old.id))
            begin(tasks, new_work, replacements[0])

        async with anyio.create_task_group() as group:
            group.start_soon(host.agents.dispose, old)
            await drained()
            group.start_soon(replace)
            await drained()
            assert replacements == []
            stubborn.end(Completed())
        await host.agents.dispose(old)
        await old.scope.aclose()
        assert new_work.reasons == []
        assert [task.id for task in tasks.list(old.id)] == ["bash-2"]


async def test_a_turn_that_waits_for_a_task_ends_before_the_task_does(store: SessionStore) -> None:
    """Disposal stops the turn first, then the tasks; the agent leaves the registry last."""
    order: list[str] = []
    gate = Gate()
    async with tasks_host(ScriptedModel(hold(gate, text("never"))), store=store, at_rest=False) as (host, tasks):
        agent, ends = await start_agent(host), Ends(host)
        host.bus.on(AgentDisposed, lambda _: order.append(f"disposed after {len(ends.settled)} ends"))
        begin(tasks, Work(), agent)
        agent.follow_up("go")
        await gate.wait_reached()
        await host.agents.dispose(agent)
        assert order == ["disposed after 1 ends"]


async def test_a_host_that_goes_away_takes_its_tasks_with_it_and_logs_no_end(open_store: OpenStore, clock) -> None:
    work = Work(obeys=False)
    async with scripted_host(ScriptedModel(), store=open_store(clock), clock=clock, at_rest=False) as host:
        tasks = Tasks(host)
        tasks.attach(Surface())
        agent = await start_agent(host)
        begin(tasks, work, agent)
        await drained()
    assert work.has_left
    store = open_store(clock)
    stored = await store.read(agent.id)
    assert task_lines(list(stored.events)) == ["bash-1 started"]
    await store.aclose()
