"""How a task ends: one outcome, one order of telling, and producers that break their word."""

import logging

import anyio
import pytest

from retinue.agent.signals import StatusChanged
from retinue.session.events import TaskEnded
from retinue.session.store import SessionStore
from retinue.tasks.record import Completed, Failed, Killed, TasksChanged, TaskSettled
from retinue.tasks.runtime import Tasks
from retinue.tasks.surfaces import Surface
from retinue.testing.host import scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import text
from tests.tasks.work import Ends, Work, begin, drained, notices, task_lines, tasks_host


async def test_tk29_the_first_outcome_counts(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work()
        begin(tasks, work, agent)
        work.end(Completed("first"))
        work.end(Failed("second"))
        tasks.kill("bash-1", agent.id)
        task = await ends.wait()
        await drained()
        assert (task.status, task.output) == ("completed", "first")
        assert len(ends.settled) == 1
        assert task_lines(agent.session.events) == ["bash-1 started", "bash-1 completed"]


async def test_tk03_a_terminal_status_stays(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends = await start_agent(host), Ends(host)
        for number, outcome in enumerate((Completed(), Killed(), Failed("x")), 1):
            work = Work()
            id = begin(tasks, work, agent).id
            work.end(outcome)
            before = (await ends.wait(number)).status
            tasks.kill(id, agent.id)
            tasks.read(id, agent.id)
            assert tasks.get(id, agent.id).status == before
        assert [task.status for task in ends.settled] == ["completed", "killed", "failed"]


async def test_tk30_outcome_waiters_change_log_notice_in_this_order(store: SessionStore) -> None:
    seen: list[str] = []
    model = ScriptedModel(text("thanks"))
    async with tasks_host(model, store=store) as (host, tasks):
        agent, work, ends = await start_agent(host), Work(), Ends(host)
        begin(tasks, work, agent)

        def note(what: str) -> None:
            is_logged = any(isinstance(event.data, TaskEnded) for event in agent.session.events)
            is_noticed = len(agent.session.mailbox) > 0
            seen.append(f"{what}: {tasks.get('bash-1', agent.id).status}, {is_logged=}, {is_noticed=}")

        undo = host.bus.on(TasksChanged, lambda _: note("change"))
        host.bus.on(StatusChanged, lambda event: note(event.status))
        host.bus.on(TaskSettled, lambda _: note("settled"))
        work.end(Completed())
        await ends.wait()
        await agent.wait_idle()
        undo()
        assert seen == [
            "change: completed, is_logged=False, is_noticed=False",
            "running: completed, is_logged=True, is_noticed=True",
            "settled: completed, is_logged=True, is_noticed=True",
            "idle: completed, is_logged=True, is_noticed=False",
        ]


async def test_tk30_end_and_notice_are_one_batch(store: SessionStore) -> None:
    async with tasks_host(ScriptedModel(text("ok")), store=store) as (host, tasks):
        agent, work, ends = await start_agent(host), Work(), Ends(host)
        begin(tasks, work, agent)
        seq: list[int] = []
        host.bus.on(TaskSettled, lambda _: seq.append(agent.session.next_seq))
        work.end(Completed())
        await ends.wait()
        assert isinstance(agent.session.events[seq[0] - 1].data, TaskEnded)
        assert len(await notices(host, agent.id)) == 1


@pytest.mark.parametrize("error", [ValueError("lost the thread"), ExceptionGroup("two", [OSError("a"), OSError("b")])])
async def test_tk31_a_done_that_raises_is_a_failure_and_a_logged_violation(
    store: SessionStore, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with tasks_host(store=store, completion_delivery="quiet", errors_logged=True) as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work()
        begin(tasks, work, agent)
        work.break_off(error)
        task = await ends.wait()
        assert task.status == "failed"
        assert task.detail is not None
        assert task.detail.startswith("producer violation: ")
        assert any("producer violation" in record.message for record in caplog.records)
        assert task_lines(agent.session.events)[-1].startswith("bash-1 failed: producer violation")


async def test_tk31_an_outcome_that_is_none_is_a_violation_too(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet", errors_logged=True) as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work()
        begin(tasks, work, agent)
        work.end("done")  # pyright: ignore[reportArgumentType]
        assert "producer violation" in ((await ends.wait()).detail or "")


async def test_tk31_a_done_that_cancels_itself_does_not_leave_the_task_open(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work()
        begin(tasks, work, agent)
        work.break_off(anyio.get_cancelled_exc_class()())
        assert (await ends.wait()).status == "failed"
        assert tasks.live(agent) == 0


async def test_tk32_a_listener_that_fails_starves_nobody(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet", errors_logged=True) as (host, tasks):
        agent, work = await start_agent(host), Work()

        def broken(_: object) -> None:
            raise RuntimeError("listener")

        for kind in (TasksChanged, TaskSettled):
            host.bus.on(kind, broken)
        ends = Ends(host)
        begin(tasks, work, agent)
        work.end(Completed())
        assert (await ends.wait()).status == "completed"
        assert len(await notices(host, agent.id)) == 1


async def test_tk32_a_surface_that_fails_leaves_the_notice_to_the_next(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    from retinue.tasks.notices import Notices

    def broken(*_: object) -> None:
        raise RuntimeError("surface")

    async with scripted_host(ScriptedModel(), store=store, errors_logged=True) as host:
        tasks, agent, work, ends = Tasks(host), await start_agent(host), Work(), Ends(host)
        tasks.attach(Surface(announce=broken))
        tasks.attach(Surface(announce=Notices(delivery="quiet").announce))
        begin(tasks, work, agent)
        work.end(Completed())
        await ends.wait()
        assert len(await notices(host, agent.id)) == 1
        assert any("could not announce" in record.message for record in caplog.records)
        await tasks.aclose()


async def test_tk33_two_surfaces_give_one_notice_and_the_owners_own_comes_first(store: SessionStore) -> None:
    from retinue.tasks.notices import Notices

    asked: list[str] = []

    async with scripted_host(ScriptedModel(), store=store) as host:
        tasks, agent, other = Tasks(host), await start_agent(host), await start_agent(host)
        ends = Ends(host)
        for name, scope in (("global", None), ("own", agent), ("other", other)):

            def announce(owner, task, name=name):
                asked.append(name)
                return Notices(delivery="quiet").announce(owner, task)

            tasks.attach(Surface(announce=announce), scope=scope)
        work = Work()
        begin(tasks, work, agent)
        work.end(Completed())
        await ends.wait()
        assert asked == ["own"]
        assert len(await notices(host, agent.id)) == 1
        await tasks.aclose()


async def test_tk40_changes_are_told_at_start_stop_end_and_removal(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work(obeys=False)
        counts: list[int] = []

        def count() -> None:
            counts.append(len(ends.changes))

        begin(tasks, work, agent)
        count()
        tasks.kill("bash-1", agent.id)
        count()
        tasks.kill("bash-1", agent.id)
        count()
        work.end(Killed())
        await ends.wait()
        count()
        await host.agents.dispose(agent)
        count()
        assert counts == [1, 2, 2, 3, 4]
        assert set(ends.changes) == {agent}
        begin(tasks, Work(), None)
        assert ends.changes[-1] is None


async def test_an_end_that_cannot_be_logged_is_still_an_end(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "retinue")
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work()
        begin(tasks, work, agent)
        agent.session.hold.lost = True
        work.end(Completed())
        assert (await ends.wait()).status == "completed"
        agent.session.hold.lost = False
        assert any("could not be logged" in record.message for record in caplog.records)
