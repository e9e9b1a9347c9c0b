"""Jobs: a start-up, a result and a release, run as a task under a cancel scope of the task's own."""

from collections.abc import Callable

import anyio
import pytest

from retinue.agent.agent import Agent
from retinue.errors import DepthExceeded, MissingSeam
from retinue.session.store import SessionStore
from retinue.tasks.job import Job, Stop, outcome_of_ending, start_job
from retinue.tasks.record import Completed, Failed, Killed, TaskOutcome, TaskSnapshot
from retinue.tasks.runtime import TASKS, Tasks
from retinue.testing.clock import FakeClock
from retinue.testing.faults import FaultyStore, appends
from retinue.testing.gate import Gate
from retinue.testing.host import start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, text
from retinue.tools.function import tool
from retinue.tools.tool import Tool, ToolContext
from tests.tasks.work import Ends, drained, notices, task_lines, tasks_host


class Run:
    """A job whose three parts each wait for a gate, and fail as the test says."""

    def __init__(self) -> None:
        self.starting, self.running, self.releasing = Gate("start"), Gate("run"), Gate("release")
        self.outcome: TaskOutcome = Completed("the answer")
        self.start_error: Exception | None = None
        self.rollback_error: Exception | None = None
        self.result_error: Exception | None = None
        self.release_error: Exception | None = None
        self.trace: list[str] = []
        self.seen_reason: str | None = None

    @property
    def job(self) -> Job[str]:
        return Job(open=self._open, result=self._result, release=self._release)

    async def _open(self, stop: Stop) -> str:
        self.trace.append("open")
        try:
            await self.starting.wait()
        except anyio.get_cancelled_exc_class():
            self.seen_reason = stop.reason
            self.trace.append("rolled back")
            if self.rollback_error is not None:
                raise self.rollback_error  # noqa: B904  (as a producer's clean-up fails: in the middle of a cancellation)
            raise
        if self.start_error is not None:
            raise self.start_error
        return "resource"

    async def _result(self, _: str) -> TaskOutcome:
        self.trace.append("result")
        await self.running.wait()
        if self.result_error is not None:
            raise self.result_error
        return self.outcome

    async def _release(self, resource: str) -> None:
        await self.releasing.wait()
        self.trace.append(f"release {resource}")
        if self.release_error is not None:
            raise self.release_error

    def open_gates(self) -> None:
        for gate in (self.starting, self.running, self.releasing):
            gate.open()


async def launch(tasks: Tasks | None, run: Run, owner: Agent | None) -> TaskSnapshot:
    return await start_job(tasks, run.job, kind="subagent", label="look", owner=owner)


async def test_ts29_a_cancelled_caller_starts_nothing(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, run = await start_agent(host), Run()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await launch(tasks, run, agent)
        assert scope.cancelled_caught
        await drained()
        assert tasks.list(agent.id) == ()
        assert run.trace == []


async def test_ts30_a_missing_runtime_is_named() -> None:
    with pytest.raises(MissingSeam, match="plugin 'tasks'"):
        await launch(None, Run(), None)


async def test_ts31_ts35_a_completed_job_shows_its_final_output(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, run = await start_agent(host), Run()
        task = await launch(tasks, run, agent)
        assert (task.id, task.kind, task.label, task.owner) == ("subagent-1", "subagent", "look", agent.id)
        await run.starting.wait_reached()
        assert tasks.read(task.id, agent.id).text == ""
        run.open_gates()
        ended = await tasks.wait(task.id, agent.id, 1)
        assert (ended.status, ended.output) == ("completed", "the answer")
        assert run.trace == ["open", "result", "release resource"]


async def test_ts32_aborting_the_starting_call_does_not_touch_the_job(store: SessionStore) -> None:
    runs: list[Run] = [Run()]
    gate, held = Gate(), list[Tasks]()
    model = ScriptedModel(calls(call("launch")), hold(gate, text("never")))
    async with tasks_host(model, store=store, tools=[launcher(lambda: held[0], runs)]) as (host, tasks):
        held.append(tasks)
        agent, ends = await start_agent(host), Ends(host)
        agent.follow_up("go")
        await gate.wait_reached()
        agent.cancel(keep_mailbox=True)
        await agent.wait_idle()
        assert tasks.get("subagent-1", agent.id).status == "running"
        tasks.kill("subagent-1", agent.id)
        runs[0].releasing.open()
        assert (await ends.wait()).status == "killed"


def launcher(tasks: Callable[[], Tasks], runs: list[Run]) -> Tool:
    """A tool as a producer writes it: it answers with the id and leaves the work to the task."""

    @tool(name="launch", effect="rows", safe=True)
    async def start(ctx: ToolContext, number: int = 0) -> str:
        """Start it."""
        assert isinstance(ctx.caller, Agent)
        task = await launch(tasks(), runs[number], ctx.caller)
        return f"started {task.id}"

    return start


@pytest.mark.parametrize(("given", "seen"), [("not needed", "not needed"), (None, "it was killed")])
async def test_ts33_cancelling_covers_a_pending_start_up(store: SessionStore, given: str | None, seen: str) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, run = await start_agent(host), Run()
        await launch(tasks, run, agent)
        await run.starting.wait_reached()
        tasks.kill("subagent-1", agent.id, given)
        ended = await tasks.wait("subagent-1", agent.id, 1)
        assert (ended.status, ended.detail) == ("killed", seen)
        assert run.seen_reason == seen
        assert run.trace == ["open", "rolled back"]


async def test_ts33_cancelling_covers_the_running_work_and_releases_it_first(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, run = await start_agent(host), Run()
        await launch(tasks, run, agent)
        run.starting.open()
        await run.running.wait_reached()
        tasks.kill("subagent-1", agent.id, "enough")
        await run.releasing.wait_reached()
        assert tasks.get("subagent-1", agent.id).status == "stopping"
        run.releasing.open()
        ended = await tasks.wait("subagent-1", agent.id, 1)
        assert (ended.status, ended.detail) == ("killed", "enough")


async def test_ts33_a_job_that_is_killed_before_it_runs_opens_nothing(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, run = await start_agent(host), Run()
        await launch(tasks, run, agent)
        tasks.kill("subagent-1", agent.id)
        assert (await tasks.wait("subagent-1", agent.id, 1)).status == "killed"
        assert run.trace == []


async def test_ts34_a_start_up_that_gives_up_when_asked_is_killed(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent = await start_agent(host)
        stops: list[Stop] = []
        asked = anyio.Event()

        async def open(stop: Stop) -> str:
            stops.append(stop)
            with anyio.CancelScope(shield=True):
                await asked.wait()
            raise RuntimeError(f"gave up: {stop.reason}")

        async def result(_: str) -> TaskOutcome:
            raise AssertionError

        await start_job(tasks, Job(open=open, result=result), kind="x", label="x", owner=agent)
        await drained()
        tasks.kill("x-1", agent.id, "not needed")
        asked.set()
        assert (await tasks.wait("x-1", agent.id, 1)).status == "killed"


async def test_ts34_a_start_up_that_fails_by_itself_is_a_failure(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, run = await start_agent(host), Ends(host), Run()
        run.start_error = DepthExceeded("too deep")
        run.open_gates()
        await launch(tasks, run, agent)
        ended = await ends.wait()
        assert (ended.status, ended.detail) == ("failed", "DEPTH_EXCEEDED: too deep")
        assert run.trace == ["open"]
        assert len(await notices(host, agent.id)) == 1


async def test_ts34_a_failed_rollback_is_a_failure_with_both_causes(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, run = await start_agent(host), Run()
        run.rollback_error = OSError("disk full")
        await launch(tasks, run, agent)
        await run.starting.wait_reached()
        tasks.kill("subagent-1", agent.id, "not needed")
        ended = await tasks.wait("subagent-1", agent.id, 1)
        assert ended.status == "failed"
        assert ended.detail is not None
        assert "not needed" in ended.detail
        assert "disk full" in ended.detail


async def test_ss24_the_release_is_over_before_an_outcome_shows(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, run = await start_agent(host), Ends(host), Run()
        run.starting.open()
        run.running.open()
        await launch(tasks, run, agent)
        await run.releasing.wait_reached()
        assert tasks.get("subagent-1", agent.id).status == "running"
        assert ends.settled == []
        run.releasing.open()
        assert (await ends.wait()).status == "completed"


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (("completed", "text", None), Completed("text")),
        (("aborted", "part", "by parent"), Killed("by parent")),
        (("max-tokens", "part", None), Failed("max-tokens")),
        (("error", "part", "MODEL_AUTH: no key"), Failed("error: MODEL_AUTH: no key")),
        (("something-new", "", None), Failed("something-new")),
    ],
)
def test_ss25_endings_map_to_outcomes(ending: tuple[str, str, str | None], outcome: TaskOutcome) -> None:
    assert outcome_of_ending(*ending) == outcome


@pytest.mark.parametrize(
    ("outcome", "result_error", "release_error", "detail"),
    [
        (Completed("x"), ValueError("a"), None, "ValueError: a"),
        (Completed("x"), None, OSError("b"), "releasing it failed: OSError: b"),
        (Completed("x"), ValueError("a"), OSError("b"), "ValueError: a; releasing it failed: OSError: b"),
        (Failed("error: c"), None, OSError("b"), "error: c; releasing it failed: OSError: b"),
        (Killed(), None, OSError("b"), "releasing it failed: OSError: b"),
    ],
)
async def test_ss26_failures_of_result_and_release_are_failures_and_all_are_kept(
    store: SessionStore,
    outcome: TaskOutcome,
    result_error: Exception | None,
    release_error: Exception | None,
    detail: str,
) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends, run = await start_agent(host), Ends(host), Run()
        run.outcome, run.result_error, run.release_error = outcome, result_error, release_error
        run.open_gates()
        await launch(tasks, run, agent)
        ended = await ends.wait()
        assert (ended.status, ended.detail, ended.output) == ("failed", detail, None)


async def test_ss26_a_killed_job_whose_release_fails_is_a_failure_with_both_causes(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, run = await start_agent(host), Run()
        run.starting.open()
        run.releasing.open()
        run.release_error = OSError("b")
        await launch(tasks, run, agent)
        await run.running.wait_reached()
        tasks.kill("subagent-1", agent.id, "enough")
        ended = await tasks.wait("subagent-1", agent.id, 1)
        assert (ended.status, ended.detail) == ("failed", "stopped (enough); releasing it failed: OSError: b")


async def test_a_job_begins_when_its_start_is_committed(store: SessionStore, clock: FakeClock) -> None:
    gate, faulty = Gate(), FaultyStore(store)
    faulty.hold(appends("task/started"), gate)
    async with tasks_host(store=faulty, clock=clock, completion_delivery="quiet") as (host, tasks):
        agent, ends, run = await start_agent(host), Ends(host), Run()
        run.open_gates()
        await launch(tasks, run, agent)
        await gate.wait_reached()
        await drained()
        assert run.trace == []
        gate.open()
        await ends.wait()
        assert run.trace == ["open", "result", "release resource"]


async def test_a_job_whose_start_could_not_be_stored_opens_nothing(store: SessionStore, clock: FakeClock) -> None:
    faulty = FaultyStore(store)
    faulty.refuse(appends("task/started"))
    async with tasks_host(store=faulty, clock=clock, at_rest=False) as (host, tasks):
        agent, ends, run = await start_agent(host), Ends(host), Run()
        await launch(tasks, run, agent)
        ended = await ends.wait()
        assert ended.status == "failed"
        assert "scripted failure of the store" in (ended.detail or "")
        assert run.trace == []


async def test_a_host_that_goes_away_releases_the_job_and_logs_no_end(store: SessionStore) -> None:
    run = Run()
    run.starting.open()
    run.releasing.open()
    async with tasks_host(store=store, at_rest=False) as (host, tasks):
        agent = await start_agent(host)
        await launch(tasks, run, agent)
        await run.running.wait_reached()
        host.agents.suspend()
    assert run.trace == ["open", "result", "release resource"]
    assert task_lines(agent.session.events) == ["subagent-1 started"]


async def test_disposing_the_owner_waits_for_the_release(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, run = await start_agent(host), Run()
        run.starting.open()
        await launch(tasks, run, agent)
        await run.running.wait_reached()
        async with anyio.create_task_group() as group:
            group.start_soon(host.agents.dispose, agent)
            await run.releasing.wait_reached()
            assert host.agents.is_live(agent)
            run.releasing.open()
        assert not host.agents.is_live(agent)
        assert task_lines(agent.session.events)[-1] == "subagent-1 killed: its owner was disposed"


# C27


def _c27() -> ScriptedModel:
    return ScriptedModel(
        calls(call("launch")),
        calls(call("task_kill", task_id="subagent-1", reason="not needed")),
        calls(call("task_output", task_id="subagent-1", wait=True)),
        text("ok"),
    )


@pytest.mark.parametrize("rollback_fails", [False, True])
async def test_c27_kill_a_task_while_it_starts_up(store: SessionStore, rollback_fails: bool) -> None:
    run = Run()
    if rollback_fails:
        run.rollback_error = OSError("clean-up failed")
    held: list[Tasks] = []
    async with tasks_host(_c27(), store=store, tools=[launcher(lambda: held[0], [run])]) as (host, _):
        held.append(host.require(TASKS, needed_by="the test"))
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        model = host.client("scripted")
        assert isinstance(model, ScriptedModel)
        started, killed, read = (request.new[0] for request in model.requests()[1:])
        assert started == "started subagent-1"
        assert killed.endswith("[status: stopping]")
        assert run.seen_reason == "not needed"
        if rollback_fails:
            assert "[status: failed, stopped (not needed); OSError: clean-up failed" in read
        else:
            assert read == "(no new output)\n[status: killed, not needed]"
        assert await notices(host, agent.id) == []
