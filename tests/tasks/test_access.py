"""Who may name a task; reading, killing and waiting."""

from contextlib import suppress

import anyio
import pytest

from retinue.base.ids import SessionId
from retinue.errors import AgentClosing, BadInput, NotFound, Unauthorized
from retinue.session.store import SessionStore
from retinue.tasks.record import Completed, Failed, TaskSettled, TaskSnapshot
from retinue.testing.clock import FakeClock
from retinue.testing.host import start_agent
from tests.tasks.work import Ends, Work, begin, drained, notices, tasks_host


async def test_tk16_another_session_is_refused_whatever_it_tries(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        a, b = await start_agent(host, "A"), await start_agent(host, "B")
        work = Work()
        begin(tasks, work, a)
        for caller in (b.id, None, SessionId("session-unknown")):
            for act in (tasks.get, tasks.read, tasks.kill):
                with pytest.raises(Unauthorized, match="belongs to another agent"):
                    act("bash-1", caller)
            with pytest.raises(Unauthorized):
                await tasks.wait("bash-1", caller, 1)
        assert work.reasons == []
        assert tasks.get("bash-1", a.id).status == "running"


async def test_tk16_tasks_without_an_owner_are_open_to_all(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent = await start_agent(host)
        begin(tasks, Work(), None)
        for caller in (agent.id, None):
            assert tasks.get("bash-1", caller).owner is None
        tasks.kill("bash-1", agent.id)
        assert (await tasks.wait("bash-1", None, 1)).status == "killed"


async def test_tk16_equal_ids_of_two_owners_are_two_tasks(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        a, b = await start_agent(host, "A"), await start_agent(host, "B")
        begin(tasks, Work(), a, label="of a")
        begin(tasks, Work(), b, label="of b")
        assert [tasks.get("bash-1", agent.id).label for agent in (a, b)] == ["of a", "of b"]


async def test_tk17_an_unknown_id_is_an_error_and_a_past_one_says_how_it_ended(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work()
        with pytest.raises(NotFound, match="no background task 'bash-7'"):
            tasks.read("bash-7", agent.id)
        begin(tasks, work, agent)
        await host.agents.dispose(agent)
        await ends.wait()
        agent = await host.agents.resume(agent.id)
        with pytest.raises(NotFound, match=r"'bash-1' is over \(killed, its owner was disposed\)"):
            tasks.read("bash-1", agent.id)


async def test_tk18_the_list_has_own_and_unowned_tasks_in_order(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        a, b = await start_agent(host, "A"), await start_agent(host, "B")
        for owner, label in ((a, "1"), (None, "2"), (b, "3"), (a, "4")):
            begin(tasks, Work(), owner, label=label)
        assert [task.label for task in tasks.list(a.id)] == ["1", "2", "4"]
        assert [task.label for task in tasks.list(None)] == ["2"]


async def test_tk19_a_stream_gives_what_is_new(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work(streams=True)
        begin(tasks, work, agent)
        work.new_output = "one\n"
        assert tasks.read("bash-1", agent.id).text == "one\n"
        assert tasks.read("bash-1", agent.id).text == ""
        work.new_output = "two\n"
        work.end(Completed("not this"))
        await ends.wait()
        assert [tasks.read("bash-1", agent.id).text for _ in range(2)] == ["two\n", ""]


async def test_tk20_a_final_output_is_empty_while_live_and_then_the_same_each_time(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work()
        begin(tasks, work, agent)
        assert tasks.read("bash-1", agent.id).text == ""
        work.end(Completed("all of it"))
        await ends.wait()
        assert [tasks.read("bash-1", agent.id).text for _ in range(3)] == ["all of it"] * 3


async def test_tk21_reading_marks_reported_only_what_has_ended(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work()
        begin(tasks, work, agent)
        assert not tasks.read("bash-1", agent.id).task.is_reported
        work.end(Completed())
        await ends.wait()
        assert not tasks.get("bash-1", agent.id).is_reported
        assert tasks.read("bash-1", agent.id).task.is_reported


async def test_a_reading_that_fails_marks_nothing(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work(streams=True)
        begin(tasks, work, agent)
        work.end(Completed())
        await ends.wait()
        del work.new_output
        with pytest.raises(AttributeError):
            tasks.read("bash-1", agent.id)
        assert not tasks.get("bash-1", agent.id).is_reported


async def test_tk22_a_kill_asks_first_and_then_changes_the_status(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, work = await start_agent(host), Work(obeys=False)
        begin(tasks, work, agent)
        answer, task = tasks.kill("bash-1", agent.id, "enough")
        assert (answer, task.status, task.is_reported) == ("cancellation-requested", "stopping", True)
        assert work.reasons == ["enough"]
        work.end(Completed("made it"))
        assert (await tasks.wait("bash-1", agent.id, 1)).status == "completed"
        assert await notices(host, agent.id) == []


async def test_tk22_a_cancel_that_fails_changes_nothing(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work()
        before = begin(tasks, work, agent)
        changes = len(ends.changes)
        work.cancel_error = OSError("no permission")
        with pytest.raises(OSError, match="no permission"):
            tasks.kill("bash-1", agent.id, "enough")
        assert tasks.get("bash-1", agent.id) == before
        assert len(ends.changes) == changes
        work.cancel_error = None
        work.end(Completed())
        await ends.wait()
        assert len(await notices(host, agent.id)) == 1


async def test_tk23_killing_what_has_ended_marks_it_and_leaves_its_output(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work(streams=True)
        begin(tasks, work, agent)
        work.new_output = "still here"
        work.end(Completed())
        await ends.wait()
        answer, task = tasks.kill("bash-1", agent.id)
        assert (answer, task.status, task.is_reported) == ("already-finished", "completed", True)
        assert work.reasons == []
        assert tasks.read("bash-1", agent.id).text == "still here"


async def test_tk24_the_first_reason_is_forwarded_and_logged(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, work = await start_agent(host), Work(obeys=False)
        begin(tasks, work, agent)
        tasks.kill("bash-1", agent.id, "first")
        tasks.kill("bash-1", agent.id, "second")
        work.end(Failed("could not stop"))
        assert (await tasks.wait("bash-1", agent.id, 1)).detail == "could not stop"
        quick = Work()
        begin(tasks, quick, agent)
        tasks.kill("bash-2", agent.id, "third")
        assert (await tasks.wait("bash-2", agent.id, 1)).detail == "third"
        assert (work.reasons, quick.reasons) == (["first", "second"], ["third"])


@pytest.mark.parametrize("timeout_s", [0, -1, float("inf"), float("nan")])
async def test_tk25_a_wait_needs_a_positive_finite_time(store: SessionStore, timeout_s: float) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent = await start_agent(host)
        begin(tasks, Work(), agent)
        with pytest.raises(BadInput, match="positive, finite"):
            await tasks.wait("bash-1", agent.id, timeout_s)


async def test_tk25_a_wait_ends_with_the_task_and_marks_it(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, work, got = await start_agent(host), Work(), list[TaskSnapshot]()
        begin(tasks, work, agent)

        async def wait() -> None:
            got.append(await tasks.wait("bash-1", agent.id, 5))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            group.start_soon(wait)
            await drained()
            work.end(Completed("x"))
        assert [(task.status, task.is_reported) for task in got] == [("completed", True)] * 2
        assert await notices(host, agent.id) == []


async def test_tk25_a_wait_that_runs_out_shows_the_live_task_and_marks_nothing(
    store: SessionStore, clock: FakeClock
) -> None:
    async with tasks_host(store=store, clock=clock, completion_delivery="quiet") as (host, tasks):
        agent, ends, work, got = await start_agent(host), Ends(host), Work(), list[TaskSnapshot]()
        begin(tasks, work, agent)

        async def wait() -> None:
            got.append(await tasks.wait("bash-1", agent.id, 7))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await clock.wait_sleeping(7)
            await clock.advance(7)
        assert 7 not in clock.sleeping
        assert [(task.status, task.is_reported) for task in got] == [("running", False)]
        work.end(Completed())
        await ends.wait()
        assert len(await notices(host, agent.id)) == 1


async def test_tk26_an_aborted_wait_counts_no_more_in_the_same_instant(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work()
        begin(tasks, work, agent)
        scope = anyio.CancelScope()

        async def wait() -> None:
            with scope:
                await tasks.wait("bash-1", agent.id, 5)

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await drained()
            work.end(Completed())
            scope.cancel()
        assert scope.cancelled_caught
        await ends.wait()
        assert not tasks.get("bash-1", agent.id).is_reported
        assert len(await notices(host, agent.id)) == 1


@pytest.mark.parametrize("by", ["its end", "an abort"])
async def test_a_wait_leaves_no_timer_behind(store: SessionStore, clock: FakeClock, by: str) -> None:
    async with tasks_host(store=store, clock=clock) as (host, tasks):
        agent, work = await start_agent(host), Work()
        begin(tasks, work, agent)
        async with anyio.create_task_group() as group:
            group.start_soon(tasks.wait, "bash-1", agent.id, 7)
            await clock.wait_sleeping(7)
            if by == "an abort":
                group.cancel_scope.cancel()
            else:
                work.end(Completed())
        await drained()
        assert 7 not in clock.sleeping


async def test_nobody_can_wait_while_the_host_goes_away(store: SessionStore) -> None:
    async with tasks_host(store=store, at_rest=False) as (host, tasks):
        agent = await start_agent(host)
        begin(tasks, Work(), agent)
        await host.suspend()
        with pytest.raises(AgentClosing):
            await tasks.wait("bash-1", agent.id, 7)


async def test_tk26_aborting_one_wait_leaves_the_task_and_other_waits(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, work, got = await start_agent(host), Work(), list[TaskSnapshot]()
        begin(tasks, work, agent)
        scope = anyio.CancelScope()

        async def wait(scope: anyio.CancelScope) -> None:
            with scope:
                got.append(await tasks.wait("bash-1", agent.id, 5))

        async with anyio.create_task_group() as group:
            group.start_soon(wait, scope)
            group.start_soon(wait, anyio.CancelScope())
            await drained()
            scope.cancel()
            await drained()
            assert (tasks.get("bash-1", agent.id).status, work.reasons) == ("running", [])
            work.end(Completed())
        assert [task.status for task in got] == ["completed"]


async def test_tk27_a_released_wait_returns_although_it_is_aborted_then(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, work, got = await start_agent(host), Work(), list[TaskSnapshot]()
        begin(tasks, work, agent)
        scope = anyio.CancelScope()

        async def wait() -> None:
            with scope:
                got.append(await tasks.wait("bash-1", agent.id, 5))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await drained()
            host.bus.on(TaskSettled, lambda _: scope.cancel())
            work.end(Completed())
        assert [task.status for task in got] == ["completed"]


async def test_tk28_a_wait_for_what_has_ended_returns_at_once(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, work = await start_agent(host), Ends(host), Work()
        begin(tasks, work, agent)
        work.end(Completed())
        await ends.wait()
        waiting = tasks.wait("bash-1", agent.id, 5)
        with pytest.raises(StopIteration) as returned, suppress(RuntimeError):
            waiting.send(None)
        assert returned.value.value.is_reported
