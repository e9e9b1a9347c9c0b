"""Starting a task: checks, then the starter, then a registration that cannot fail."""

import pytest

from retinue.agent.agent import Agent
from retinue.agent.signals import AgentCreated
from retinue.base.ids import SessionId
from retinue.errors import AgentClosing, BadInput, LeaseLost, MissingSeam, RetinueError, TaskLimit
from retinue.session.events import TaskStarted
from retinue.session.store import SessionStore
from retinue.tasks.history import highest_numbers
from retinue.tasks.record import Completed
from retinue.tasks.runtime import Tasks
from retinue.tasks.surfaces import Surface
from retinue.testing.clock import FakeClock
from retinue.testing.host import scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from tests.support.stores import OpenStore
from tests.tasks.work import Ends, Work, begin, task_lines, tasks_host


async def test_tk01_ids_count_by_kind_and_owner(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        a, b = await start_agent(host, "A"), await start_agent(host, "B")
        ids = [
            begin(tasks, Work(), owner, kind=kind).id
            for owner, kind in ((a, "bash"), (a, "subagent"), (b, "bash"), (a, "bash"), (b, "bash"))
        ]
        assert ids == ["bash-1", "subagent-1", "bash-1", "bash-2", "bash-2"]


async def test_tk01_numbers_go_on_above_those_of_the_log(open_store: OpenStore, clock: FakeClock) -> None:
    id = SessionId("session-1")
    async with tasks_host(store=open_store(clock), clock=clock) as (host, tasks):
        agent = await start_agent(host, id=id)
        for _ in range(3):
            begin(tasks, Work(), agent)
        await host.agents.dispose(agent)
    async with tasks_host(store=open_store(clock), clock=clock) as (host, tasks):
        agent = await host.agents.resume(id)
        assert highest_numbers(agent.session.events) == {"bash": 3}
        assert begin(tasks, Work(), agent).id == "bash-4"


async def test_tk01_an_owned_and_an_unowned_task_never_share_an_id(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent = await start_agent(host)
        assert begin(tasks, Work(), None).id == "bash-1"
        assert begin(tasks, Work(), agent).id == "bash-2"
        assert begin(tasks, Work(), None).id == "bash-3"
        assert [task.id for task in tasks.list(agent.id)] == ["bash-1", "bash-2", "bash-3"]


async def test_tk02_callers_get_snapshots_that_do_not_change(store: SessionStore, clock: FakeClock) -> None:
    async with tasks_host(store=store, clock=clock, completion_delivery="quiet") as (host, tasks):
        agent, work, ends = await start_agent(host), Work(), Ends(host)
        begun = begin(tasks, work, agent, label="build", limit=100)
        await clock.advance(2)
        work.end(Completed("out", "fine"))
        await ends.wait()
        assert (begun.status, begun.finished_at, begun.output) == ("running", None, None)
        after = tasks.get("bash-1", agent.id)
        assert (after.id, after.kind, after.label, after.output_limit) == ("bash-1", "bash", "build", 100)
        assert (after.status, after.detail, after.output, after.is_reported) == ("completed", "fine", "out", False)
        assert after.owner == agent.id
        assert after.finished_at == begun.started_at + 2000


async def test_tk04_starts_and_ends_are_in_the_owners_log(store: SessionStore) -> None:
    async with tasks_host(store=store, completion_delivery="quiet") as (host, tasks):
        agent, ends = await start_agent(host), Ends(host)
        first, second = Work(), Work()
        begin(tasks, first, agent)
        begin(tasks, second, agent, kind="subagent")
        second.end(Completed(detail="early"))
        await ends.wait()
        tasks.kill("bash-1", agent.id, "not needed")
        await ends.wait(2)
        assert task_lines(agent.session.events) == [
            "bash-1 started",
            "subagent-1 started",
            "subagent-1 completed: early",
            "bash-1 killed: not needed",
        ]


class _Case:
    """Everything wrong at once; `mend` takes the faults away in the order in which they must be found."""

    def __init__(self, tasks: Tasks, dead: Agent, live: Agent) -> None:
        self.tasks, self.live = tasks, live
        self.work = Work()
        self.owner, self.kind, self.label, self.limit = dead, " ", "", -1

    def start(self) -> str:
        return begin(self.tasks, self.work, self.owner, kind=self.kind, label=self.label, limit=self.limit).id


async def test_tk06_tk08_checks_run_in_order_and_before_the_starter(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        tasks = Tasks(host, max_per_owner=1)
        live, dead = await start_agent(host, "live"), await start_agent(host, "dead")
        await host.agents.dispose(dead)
        case = _Case(tasks, dead, live)

        def refused(kind: type[RetinueError], words: str) -> None:
            with pytest.raises(kind, match=words):
                case.start()
            assert case.work.starts == 0

        refused(MissingSeam, "control surface")
        with tasks.attach(Surface()):
            refused(BadInput, "kind")
            case.kind = "bash"
            refused(BadInput, "label")
            case.label = "x"
            for limit in (-1, 0, True, 1.5):
                case.limit = limit  # pyright: ignore[reportAttributeAccessIssue]
                refused(BadInput, "positive")
            case.limit = 10
            refused(AgentClosing, "not live")
            case.owner = live
            filler = begin(tasks, Work(), live)
            refused(TaskLimit, "1 background task")
            tasks.kill(filler.id, live.id)
            await tasks.wait(filler.id, live.id, 1)
            assert case.start() == "bash-2"
            assert case.work.starts == 1
        await tasks.aclose()


async def test_tk06_an_agent_that_is_not_published_yet_owns_nothing(store: SessionStore) -> None:
    refusals: list[str] = []
    async with tasks_host(store=store) as (host, tasks):

        def early(event: AgentCreated) -> None:
            with pytest.raises(AgentClosing) as caught:
                begin(tasks, Work(), event.agent)
            refusals.append(caught.value.code)

        host.bus.on(AgentCreated, early)
        await start_agent(host)
        assert refusals == ["AGENT_CLOSING"]


async def test_tk08_an_owner_whose_log_takes_nothing_starts_nothing(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, work = await start_agent(host), Work()
        agent.session.hold.lost = True
        with pytest.raises(LeaseLost):
            begin(tasks, work, agent)
        assert work.starts == 0
        agent.session.hold.lost = False


async def test_tk07_without_a_surface_the_error_names_what_to_load(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        tasks, work = Tasks(host), Work()
        agent = await start_agent(host)
        with pytest.raises(MissingSeam, match=r"plugin 'tasks'.*task_output, task_list and task_kill"):
            begin(tasks, work, agent)
        assert work.starts == 0
        assert task_lines(agent.session.events) == []


async def test_tk09_a_task_is_registered_when_the_starter_has_returned(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, work = await start_agent(host), Work()
        begun = begin(tasks, work, agent)
        assert work.starts == 1
        assert tasks.get(begun.id, agent.id) == begun
        assert tasks.live(agent) == 1


async def test_tk09_a_log_that_refuses_the_start_does_not_lose_the_task(store: SessionStore) -> None:
    async with tasks_host(store=store, at_rest=False) as (host, tasks):
        agent, work = await start_agent(host), Work()

        def starter():
            agent.session.hold.lost = True
            return work.start()

        begun = tasks.start(kind="bash", label="x", owner=agent, starter=starter)
        assert tasks.get(begun.id, agent.id).status == "running"
        agent.session.hold.lost = False


async def test_tk10_a_starter_that_fails_registers_nothing_and_uses_up_no_id(store: SessionStore) -> None:
    async with tasks_host(store=store, max_per_owner=1) as (host, tasks):
        agent, broken = await start_agent(host), Work()
        broken.start_error = OSError("no such program")
        with pytest.raises(OSError, match="no such program"):
            begin(tasks, broken, agent)
        assert tasks.list(agent.id) == ()
        assert task_lines(agent.session.events) == []
        assert begin(tasks, Work(), agent).id == "bash-1"
        with pytest.raises(TaskLimit):
            begin(tasks, Work(), agent)
        tasks.kill("bash-1", agent.id)
        await tasks.wait("bash-1", agent.id, 1)
        assert begin(tasks, Work(), agent).id == "bash-2"


async def test_tk11_the_fence_is_back_when_the_last_surface_is_gone(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        tasks, agent = Tasks(host), await start_agent(host)
        first, second = tasks.attach(Surface()), tasks.attach(Surface())
        first()
        begin(tasks, Work(), agent)
        second()
        with pytest.raises(MissingSeam):
            begin(tasks, Work(), agent)
        await tasks.aclose()


async def test_tk12_a_surface_of_a_scope_serves_that_scope_alone(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        tasks = Tasks(host)
        a, b = await start_agent(host, "A"), await start_agent(host, "B")
        with tasks.attach(Surface(), scope=a):
            begin(tasks, Work(), a)
            for owner in (b, None):
                with pytest.raises(MissingSeam):
                    begin(tasks, Work(), owner)
        with tasks.attach(Surface()):
            for owner in (a, b, None):
                begin(tasks, Work(), owner)
        await tasks.aclose()


async def test_tk07_an_agent_that_cannot_see_the_tools_is_not_served(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        agent, work = await start_agent(host), Work()
        agent.tools.restrict(deny=["task_output"])
        with pytest.raises(MissingSeam, match="not visible"):
            begin(tasks, work, agent)
        assert work.starts == 0


async def test_tk13_tk14_the_limit_counts_running_and_stopping_per_owner(store: SessionStore) -> None:
    async with tasks_host(store=store) as (host, tasks):
        a, b = await start_agent(host, "A"), await start_agent(host, "B")
        stubborn = Work(obeys=False)
        begin(tasks, stubborn, a)
        for _ in range(9):
            begin(tasks, Work(), a)
        with pytest.raises(TaskLimit, match=r"10 background tasks .* kill one .* or wait"):
            begin(tasks, Work(), a)
        tasks.kill("bash-1", a.id)
        with pytest.raises(TaskLimit):
            begin(tasks, Work(), a)
        for owner in (b, None):
            begin(tasks, Work(), owner)
        stubborn.end(Completed())
        await tasks.wait("bash-1", a.id, 1)
        assert tasks.live(a) == 9
        begin(tasks, Work(), a)


async def test_tk13_tasks_without_an_owner_share_one_bucket(store: SessionStore) -> None:
    async with tasks_host(store=store, max_per_owner=2) as (_, tasks):
        begin(tasks, Work(), None)
        begin(tasks, Work(), None)
        with pytest.raises(TaskLimit):
            begin(tasks, Work(), None)


async def test_tk15_a_replacement_under_the_same_id_inherits_nothing(store: SessionStore) -> None:
    async with tasks_host(store=store, max_per_owner=1) as (host, tasks):
        old = await start_agent(host, id=SessionId("session-1"))
        begin(tasks, Work(), old)
        await host.agents.dispose(old)
        new = await host.agents.resume(old.id)
        assert tasks.list(new.id) == ()
        assert begin(tasks, Work(), new).id == "bash-2"
        with pytest.raises(AgentClosing):
            begin(tasks, Work(), old)


def test_numbers_of_other_forms_are_not_counted() -> None:
    from retinue.session.events import Event

    events = [Event(0, 0, TaskStarted(task_id=id, kind="bash", label="x")) for id in ("bash-2", "bash-x", "other-9")]
    assert highest_numbers(events) == {"bash": 2}
