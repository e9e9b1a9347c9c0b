"""Children in any order of events, against the promises of delegation: one activation at a time, one notice for each,
reports first, children before parents, nothing stranded, and every log legal. Restarts of the host included.

Each example is a list of actions. Between two of them everything runs as far as it can, or a few turns of the event
loop only, so that actions fall into the middle of things. `RETINUE_LONG=1` makes it search for minutes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.agent.agent import Agent
from retinue.agent.phase import Cause
from retinue.base.ids import MessageId, SessionId
from retinue.compose.post import post_order
from retinue.errors import RetinueError
from retinue.host.host import Host
from retinue.model.content import Source, Text, UserMessage
from retinue.session.rows import Batch, Delivery, Insert
from retinue.session.table import Sessions
from retinue.subagent.lifecycle import SubagentEnded, SubagentStarted
from retinue.subagent.provider import RunRequest
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.host import resume_agent, start_agent
from retinue.testing.model import ScriptedModel, prompt
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, fail, hold, refuse, text, truncated
from tests.scenarios.small import check_tree, of, small_host
from tests.support.stores import OpenStore, store_opener

pytestmark = pytest.mark.exploration

IS_LONG = bool(os.environ.get("RETINUE_LONG"))
REPLIES = (
    "text",
    "held",
    "report",
    "held report",
    "spawn",
    "spawn",
    "held spawn",
    "failure",
    "refusal",
    "truncated",
    "empty",
)
Who: TypeAlias = int
"""Picks one of the agents that are there, however many."""


@dataclass(frozen=True)
class Start:
    who: Who


@dataclass(frozen=True)
class FollowUp:
    who: Who


@dataclass(frozen=True)
class Interrupt:
    who: Who


@dataclass(frozen=True)
class Maintain:
    who: Who


@dataclass(frozen=True)
class StopRoot:
    keep_mailbox: bool


@dataclass(frozen=True)
class Drain:
    who: Who


@dataclass(frozen=True)
class Release:
    who: Who


@dataclass(frozen=True)
class Dispose:
    who: Who


@dataclass(frozen=True)
class Foreign:
    """Another process inserts a message."""

    who: Who
    source: Literal["user", "coordinator"]


@dataclass(frozen=True)
class Order:
    """Another process orders an interrupt or a stop."""

    who: Who
    kind: Literal["interrupt", "stop"]


@dataclass(frozen=True)
class Open:
    """The oldest held reply or maintenance goes on."""


@dataclass(frozen=True)
class Yield:
    turns: int


@dataclass(frozen=True)
class Restart:
    pass


Action: TypeAlias = (
    Start
    | FollowUp
    | Interrupt
    | Maintain
    | StopRoot
    | Drain
    | Release
    | Dispose
    | Foreign
    | Order
    | Open
    | Yield
    | Restart
)
_who = st.integers(0, 5)
actions = st.one_of(
    st.builds(Start, _who),
    st.builds(Start, st.just(0)),
    st.builds(Start, st.just(0)),
    st.builds(FollowUp, _who),
    st.builds(FollowUp, _who),
    st.builds(Interrupt, _who),
    st.builds(Maintain, _who),
    st.builds(StopRoot, st.booleans()),
    st.builds(Drain, _who),
    st.builds(Release, _who),
    st.builds(Dispose, _who),
    st.builds(Foreign, _who, st.sampled_from(["user", "coordinator"])),
    st.builds(Order, _who, st.sampled_from(["interrupt", "stop"])),
    st.just(Open()),
    st.builds(Yield, st.integers(1, 12)),
    st.builds(Yield, st.integers(1, 12)),
    st.just(Yield(60)),
    st.just(Yield(60)),
    st.just(Restart()),
)


@pytest.mark.timeout(900 if IS_LONG else 60)
@settings(
    max_examples=2000 if IS_LONG else 40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)
@given(
    st.lists(actions, min_size=12, max_size=40),
    st.lists(st.sampled_from(REPLIES), min_size=8, max_size=40),
    st.booleans(),
)
def test_children_keep_their_promises_in_any_order_of_events(
    todo: list[Action], replies: list[str], is_sqlite: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(explore, todo, replies, store_opener("sqlite" if is_sqlite else "memory", Path(folder)))


async def explore(todo: list[Action], replies: list[str], open_store: OpenStore) -> None:
    world = World(open_store, iter(replies))
    segments: list[list[Action]] = [[]]
    for action in todo:
        if isinstance(action, Restart):
            segments.append([])
        else:
            segments[-1].append(action)
    try:
        with anyio.fail_after(30):
            for segment in segments:
                await world.live(segment)
            await world.live([], to_the_end=True)
    except TimeoutError:
        raise AssertionError(f"it hangs: {world.describe()}") from None


@dataclass
class World:
    open_store: OpenStore
    replies: Iterator[str]
    clock: FakeClock = field(default_factory=FakeClock)
    gates: list[Gate] = field(default_factory=list[Gate])
    root_id: SessionId | None = None
    known: list[SessionId] = field(default_factory=list[SessionId])
    """Every child that was ever told of."""
    host: Host | None = None
    foreign: int = 0
    clock_of_restart: int = 20
    """Restarts come at different distances from what was done before them."""
    faults: list[str] = field(default_factory=list[str])

    async def live(self, todo: list[Action], *, to_the_end: bool = False) -> None:
        """One process."""
        model = ScriptedModel()
        model.script("R", *[lambda _: text("ok")] * 500, every=True)
        model.script(prompt("."), *[self.answer] * 500, every=True)
        async with small_host(model, self.open_store(self.clock), self.clock) as host:
            self.host = host
            host.bus.on(SubagentStarted, self.started)
            host.bus.on(SubagentEnded, self.ended)
            if self.root_id is None:
                self.root_id = (await start_agent(host)).id
            else:
                await self.root()
            async with anyio.create_task_group() as group:
                for action in todo:
                    await self.act(action, group)
                    await turns(1)
                    self.check_running()
                await turns(self.clock_of_restart % 40)
                self.clock_of_restart += 17
                if to_the_end:
                    await self.finish()
                group.cancel_scope.cancel()
        assert not self.faults, self.faults

    async def finish(self) -> None:
        host = self.host
        assert host is not None
        while True:
            await turns(200)
            if not self.gates:
                break
            self.gates.pop(0).open()
        root = await self.root()
        await host.sessions.look()
        await of(host).wait_quiet(root)
        await host.sessions.writer.committed()
        self.check_running()
        assert self.root_id is not None
        await check_tree(host.sessions.store, self.root_id)
        rows = await host.sessions.store.read_rows(self.root_id)
        assert not [row.delivery.id for row in rows if row.delivery.is_control and row.state == "pending"]

    async def root(self) -> Agent:
        """The root agent: the live one, or it is resumed as a user would."""
        host = self.host
        assert host is not None
        assert self.root_id is not None
        agent = host.agents.get(self.root_id)
        if agent is None or agent.is_closing:
            agent = await resume_agent(host, self.root_id)
            await of(host).recover(agent)
        return agent

    def answer(self, _: SeenRequest) -> Reply:
        kind = next(self.replies, "text")
        gate = Gate()
        if kind.startswith("held"):
            self.gates.append(gate)
        match kind:
            case "held":
                return text("so far").hold_after(gate)
            case "report":
                return calls(call("report", output="found"))
            case "held report":
                return hold(gate, calls(call("report", output="found late"), call("report", output="and more")))
            case "spawn":
                return calls(call("subagent", description="G", prompt="below"))
            case "held spawn":
                return hold(gate, calls(call("subagent", description="G", prompt="below")))
            case "failure":
                return fail("auth")
            case "refusal":
                return refuse("no")
            case "truncated":
                return truncated("cut")
            case "empty":
                return text("")
            case _:
                return text("done")

    def started(self, event: SubagentStarted) -> None:
        if event.id not in self.known:
            self.known.append(event.id)

    def ended(self, event: SubagentEnded) -> None:
        assert self.host is not None
        left = [agent.id for agent in self.host.agents.list() if agent.session.header.parent_session == event.id]
        if left:
            self.faults.append(f"{event.id} ended before its children {left}")

    def check_running(self) -> None:
        """What may run, runs, or is being taken down."""
        assert self.host is not None
        for agent in self.host.agents.list():
            if agent.session.mailbox.is_runnable and not (agent.is_closing or agent.session.mailbox.is_stopping):
                assert type(agent.phase).__name__ in ("Running", "Maintenance", "Opening"), agent.label

    def describe(self) -> str:
        if self.host is None:
            return "no host"
        lines = [
            f"{a.label} {a.id} {type(a.phase).__name__} closing={a.is_closing} failure={a.failure} "
            f"runnable={a.session.mailbox.is_runnable} resident={of(self.host).resident(a.id) is a}"
            for a in self.host.agents.list()
        ]
        return "\n".join(lines)

    async def act(self, action: Action, group: TaskGroup) -> None:
        host = self.host
        assert host is not None
        root = await self.root()
        agents = [root, *(agent for agent in host.agents.list() if agent is not root)]
        child = self.known[action.who % len(self.known)] if self.known and hasattr(action, "who") else None  # type: ignore[union-attr]
        match action:
            case Start(who=who):
                parent = agents[who % len(agents)]
                request = RunRequest(parent=parent, prompt=(Text("do"),), label="C", max_depth=3)
                group.start_soon(attempt, of(host).start("spawn", request))
            case FollowUp() if child is not None:
                parent = await self.parent(child)
                if parent is not None:
                    group.start_soon(attempt, of(host).send(parent, child, "more"))
            case Interrupt() if child is not None:
                with suppress(RetinueError):
                    of(host).interrupt(child, root)
            case Maintain(who=who):
                gate = Gate()
                self.gates.append(gate)
                group.start_soon(attempt, agents[who % len(agents)].run_maintenance(gate.wait))
            case StopRoot(keep_mailbox=keep):
                with suppress(RetinueError):
                    root.cancel(Cause("user"), keep_mailbox=keep)
            case Drain(who=who):
                group.start_soon(attempt, of(host).drain_below(agents[who % len(agents)]))
            case Release() if child is not None:
                group.start_soon(attempt, of(host).release(root, [child]))
            case Dispose(who=who):
                group.start_soon(attempt, host.agents.dispose(agents[who % len(agents)]))
            case Foreign(source=source) if child is not None:
                await self.insert(child, source)
            case Order(who=who, kind=kind):
                assert self.root_id is not None
                await self.order([self.root_id, *self.known][who % (len(self.known) + 1)], kind)
            case Open():
                if self.gates:
                    self.gates.pop(0).open()
            case Yield(turns=count):
                await turns(count)
            case _:
                pass

    async def parent(self, child: SessionId) -> Agent | None:
        assert self.host is not None
        summary = await self.host.sessions.store.summary(child)
        above = summary.header.parent_session if summary is not None else None
        return self.host.agents.get(above) if above is not None else None

    async def insert(self, child: SessionId, kind: str) -> None:
        self.foreign += 1
        message = UserMessage(MessageId(f"foreign-{self.foreign}"), (Text("psst"),), Source(kind=kind))
        delivery = Delivery(session_id=child, message=message, target="next-turn", wake=True, accepted_at=0)
        store, done = self.open_store(self.clock), anyio.Event()
        store.begin([Batch((Insert(delivery),))], lambda _: done.set())
        await done.wait()
        if self.foreign % 2:  # a ring may be lost
            await store.ring(self.root_id or child)
        await store.aclose()

    async def order(self, id: SessionId, kind: Literal["interrupt", "stop"]) -> None:
        store = self.open_store(self.clock)
        if await store.summary(id) is not None:
            await post_order(Sessions(store, self.clock), kind, id)
        await store.aclose()


async def turns(count: int) -> None:
    """The event loop goes round so often."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


async def attempt(what: Coroutine[Any, Any, object]) -> None:
    """Whatever is refused is refused with a reason."""
    with suppress(RetinueError):
        await what
