"""Any order of starting, ending, killing, waiting, reading and disposing: one end each, and notices for the untold."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.from_thread import start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.errors import NotFound, TaskLimit, Unauthorized
from retinue.tasks.record import Completed, Failed, Killed, TaskSnapshot
from retinue.testing.clock import FakeClock
from retinue.testing.host import start_agent
from tests.tasks.work import Ends, Work, begin, drained, notices, task_lines, tasks_host

OUTCOMES = {"completed": Completed("out"), "killed": Killed("by itself"), "failed": Failed("broken")}
LIMIT = 3


@dataclass(eq=False)
class Expected:
    """What must be true of one task."""

    id: str
    owner: str | None
    work: Work
    status: str = "running"
    is_told: bool = False
    is_gone: bool = False
    owes_notice: bool = False
    waits: list["Wait"] = field(default_factory=list)

    @property
    def is_terminal(self) -> bool:
        return self.status in OUTCOMES


@dataclass(eq=False)
class Wait:
    scope: anyio.CancelScope
    got: TaskSnapshot | None = None
    is_over: bool = False


class TaskMachine(RuleBasedStateMachine):
    """The runtime in a loop of its own, beside a model of what must be true of it."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.portal = self.stack.enter_context(start_blocking_portal("asyncio"))
        self.clock = FakeClock()
        host = tasks_host(clock=self.clock, max_per_owner=LIMIT, completion_delivery="quiet")
        self.host, self.tasks = self.stack.enter_context(self.portal.wrap_async_context_manager(host))
        self.ends = self.call(lambda: Ends(self.host))
        self.agents: dict[str, Agent] = {}
        self.expected: list[Expected] = []
        self.waiting = 0
        for name in ("a", "b"):
            self.agents[name] = self.portal.call(self._agent, name)

    async def _agent(self, name: str) -> Agent:
        return await start_agent(self.host, name, id=SessionId(f"session-{name}"))

    def call(self, do: Callable[[], Any]) -> Any:
        """`do` ran in the loop, and then everything that could."""

        async def run() -> Any:
            result = do()
            await drained()
            return result

        return self.portal.call(run)

    def owner(self, name: str | None) -> Agent | None:
        return None if name is None else self.agents[name]

    def caller(self, name: str | None) -> SessionId | None:
        return None if name is None else SessionId(f"session-{name}")

    def present(self) -> list[Expected]:
        return [each for each in self.expected if not each.is_gone]

    def pick(self, number: int) -> Expected:
        return self.present()[number % len(self.present())]

    def settle(self, each: Expected, status: str) -> None:
        if each.is_terminal:
            return
        each.status = status
        live = [wait for wait in each.waits if not wait.is_over]
        each.is_told = each.is_told or bool(live)
        for wait in live:
            wait.is_over = True
        each.owes_notice = not each.is_told and each.owner is not None

    has_tasks = precondition(lambda self: bool(self.present()))

    @rule(owner=st.sampled_from(["a", "b", None]), obeys=st.booleans())
    def start(self, owner: str | None, obeys: bool) -> None:
        work = Work(obeys=obeys)
        live = [each for each in self.present() if each.owner == owner and not each.is_terminal]

        def do() -> str | None:
            try:
                return begin(self.tasks, work, self.owner(owner), label=f"{owner}").id
            except TaskLimit:
                return None

        id = self.call(do)
        assert (id is None) == (len(live) == LIMIT)
        assert work.starts == (0 if id is None else 1)
        if id is not None:
            visible = [e for e in self.present() if e.owner in (owner, None) or owner is None]
            assert id not in {each.id for each in visible}
            self.expected.append(Expected(id, owner, work))

    @has_tasks
    @rule(number=st.integers(0, 20), status=st.sampled_from(sorted(OUTCOMES)))
    def end(self, number: int, status: str) -> None:
        each = self.pick(number)
        self.call(lambda: each.work.end(OUTCOMES[status]))
        self.settle(each, status)

    @has_tasks
    @rule(number=st.integers(0, 20))
    def kill(self, number: int) -> None:
        each = self.pick(number)
        answer, _ = self.call(lambda: self.tasks.kill(each.id, self.caller(each.owner), "why"))
        assert answer == ("already-finished" if each.is_terminal else "cancellation-requested")
        each.is_told = True
        if not each.is_terminal:
            each.status = "stopping"
            if each.work._obeys:
                self.settle(each, "killed")

    @has_tasks
    @rule(number=st.integers(0, 20))
    def read(self, number: int) -> None:
        each = self.pick(number)
        got = self.call(lambda: self.tasks.read(each.id, self.caller(each.owner)))
        assert got.text == ("out" if each.status == "completed" else "")
        each.is_told = each.is_told or each.is_terminal

    @has_tasks
    @rule(number=st.integers(0, 20))
    def wait(self, number: int) -> None:
        each, wait = self.pick(number), Wait(self.call(anyio.CancelScope))

        async def run() -> None:
            self.waiting += 1
            try:
                with wait.scope:
                    wait.got = await self.tasks.wait(each.id, self.caller(each.owner), 100)
            finally:
                self.waiting -= 1

        self.call(lambda: self.host.start(run))
        if each.is_terminal:
            each.is_told = wait.is_over = True
            assert wait.got is not None
        each.waits.append(wait)

    @has_tasks
    @rule(number=st.integers(0, 20), ends_as_well=st.booleans())
    def abort_waits(self, number: int, ends_as_well: bool) -> None:
        """All waits for one task are aborted, perhaps in the very tick in which it ends."""
        each = self.pick(number)

        def do() -> None:
            if ends_as_well:
                each.work.end(OUTCOMES["completed"])
            for wait in each.waits:
                wait.scope.cancel()

        for wait in each.waits:
            wait.is_over = True
        if ends_as_well:
            self.settle(each, "completed")
        self.call(do)

    @rule(seconds=st.sampled_from([1, 60, 200]))
    def pass_time(self, seconds: int) -> None:
        before = self.clock.elapsed_s()

        async def advance() -> None:
            await self.clock.advance(seconds)
            await drained()

        self.portal.call(advance)
        assert self.clock.elapsed_s() == before + seconds
        for each in self.expected:
            for wait in each.waits:
                if wait.got is not None:
                    wait.is_over = True

    @has_tasks
    @rule(number=st.integers(0, 20))
    def a_stranger_is_refused(self, number: int) -> None:
        each = self.pick(number)
        other = {"a": "b", "b": "a"}.get(each.owner or "")
        if other is None or any(e.id == each.id for e in self.present() if e.owner == other):
            return

        def do() -> type[Exception] | None:
            try:
                self.tasks.kill(each.id, self.caller(other))
            except (Unauthorized, NotFound) as error:
                return type(error)
            return None

        assert self.call(do) is not None
        assert each.work.reasons.count("why") == len([r for r in each.work.reasons if r == "why"])

    @rule(name=st.sampled_from(["a", "b"]))
    def dispose_and_resume(self, name: str) -> None:
        own = [each for each in self.present() if each.owner == name]
        for each in own:
            if not each.is_terminal:
                each.is_told = True
                self.settle(each, "killed")
            each.is_gone = True

        async def replace() -> Agent:
            async with anyio.create_task_group() as group:
                group.start_soon(self.host.agents.dispose, self.agents[name])
                await drained()
                for each in own:
                    each.work.end(Killed())
            assert all(each.work.has_left for each in own)
            return await self.host.agents.resume(SessionId(f"session-{name}"))

        self.agents[name] = self.portal.call(replace)

    @invariant()
    def the_runtime_agrees(self) -> None:
        def look() -> dict[str | None, list[tuple[str, str, bool]]]:
            return {
                name: [(t.id, t.status, t.is_reported) for t in self.tasks.list(self.caller(name))]
                for name in ("a", "b", None)
            }

        seen = self.call(look)
        for name in ("a", "b", None):
            visible = [each for each in self.present() if each.owner in (name, None)]
            assert seen[name] == [(each.id, each.status, each.is_told) for each in visible]

    def teardown(self) -> None:
        try:
            self.portal.call(self._check_logs)
        finally:
            for each in self.present():
                self.call(lambda each=each: each.work.end(Killed()))
            self.stack.close()
        assert all(each.work.has_left for each in self.expected)
        assert self.waiting == 0

    async def _check_logs(self) -> None:
        for name, agent in self.agents.items():
            own = [each for each in self.expected if each.owner == name]
            told = {row.delivery.message.source.summary: row for row in await notices(self.host, agent.id)}
            assert sorted(s.split(" ")[0] for s in told if s) == sorted(e.id for e in own if e.owes_notice)
            lines = task_lines(agent.session.events)
            started = [line.split(" ")[0] for line in lines if line.endswith(" started")]
            ended = [line.split(" ")[0] for line in lines if not line.endswith(" started")]
            assert started == [each.id for each in own]
            assert sorted(ended) == sorted(each.id for each in own if each.is_terminal)


TaskMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
test_any_order = TaskMachine.TestCase
