"""Random sends, stops, maintenance and replies, against the promises of the mailbox: nothing lost, nothing twice.

Each example is a list of actions. The loop of the agent runs as far as it can between them, or a few turns of the event
loop only, so that actions fall into the middle of things.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio
import anyio.lowlevel
from hypothesis import given
from hypothesis import strategies as st

from retinue.agent.agent import Agent, Sent
from retinue.agent.phase import Cause
from retinue.base.ids import MessageId
from retinue.errors import AgentBusy
from retinue.host.host import Host
from retinue.model.content import USER, Source, UserMessage
from retinue.session.events import TurnEnd, TurnStart
from retinue.session.mailbox import is_instruction
from retinue.session.rows import Delivery, Kind
from retinue.session.store import SessionStore
from retinue.store.memory import MemoryHome, MemoryStore
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.host import resume_agent, scripted_host, start_agent
from retinue.testing.model import ScriptedModel, prompt
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, fail, hold, refuse, text, truncated
from tests.support.tools import echo

SOURCES = {
    "user": USER,
    "coordinator": Source(kind="coordinator", form="relay"),
    "report": Source(kind="subagent-report", form="relay"),
    "settled": Source(kind="subagent-settled", form="notice"),
}
REPLIES = ("text", "calls", "held", "held calls", "refusal", "failure", "truncated", "empty")


@dataclass(frozen=True)
class Send:
    target: Literal["next-turn", "next-step"]
    wake: bool
    source: str
    again: bool = False


@dataclass(frozen=True)
class Cancel:
    keep_mailbox: bool


@dataclass(frozen=True)
class Order:
    """Somebody outside the agent sends a control row."""

    kind: Literal["interrupt", "stop"]


@dataclass(frozen=True)
class Maintain:
    pass


@dataclass(frozen=True)
class Withdraw:
    pass


@dataclass(frozen=True)
class Open:
    """The oldest held reply or maintenance goes on."""


@dataclass(frozen=True)
class Yield:
    turns: int


@dataclass(frozen=True)
class Reload:
    """The agent is disposed and resumed."""


Action: TypeAlias = Send | Cancel | Order | Maintain | Withdraw | Open | Yield | Reload

actions = st.one_of(
    st.builds(Send, st.sampled_from(["next-turn", "next-step"]), st.booleans(), st.sampled_from(sorted(SOURCES))),
    st.builds(Send, st.just("next-turn"), st.just(True), st.just("user"), st.just(True)),
    st.builds(Cancel, st.booleans()),
    st.builds(Order, st.sampled_from(["interrupt", "stop"])),
    st.just(Maintain()),
    st.just(Withdraw()),
    st.just(Open()),
    st.builds(Yield, st.integers(1, 12)),
    st.just(Yield(60)),
    st.just(Reload()),
)


@dataclass
class World:
    host: Host
    agent: Agent
    gates: list[Gate]
    sent: list[Sent] = field(default_factory=list[Sent])
    ids: list[MessageId] = field(default_factory=list[MessageId])
    orders: list[MessageId] = field(default_factory=list[MessageId])
    first: Send | None = None

    async def act(self, action: Action) -> None:
        match action:
            case Send():
                if action.again and self.first is not None:
                    self.send(MessageId("msg-0"), self.first)
                else:
                    self.first = self.first or action
                    self.ids.append(MessageId(f"msg-{len(self.ids)}"))
                    self.send(self.ids[-1], action)
            case Cancel(keep_mailbox=keep):
                self.agent.cancel(Cause("user"), keep_mailbox=keep)
            case Order(kind=kind):
                self.order(kind)
            case Maintain():
                self.host.start(self._maintain)
            case Withdraw():
                pending = [*self.agent.session.mailbox.next_turn, *self.agent.session.mailbox.next_step]
                if pending:
                    assert self.agent.withdraw(pending[-1].id)
            case Open():
                if self.gates:
                    self.gates.pop(0).open()
            case Yield(turns=turns):
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
            case Reload():
                await self.host.agents.dispose(self.agent)
                self.agent = await resume_agent(self.host, self.agent.id)

    def send(self, id: MessageId, how: Send) -> None:
        sent = self.agent.send(id, id=id, target=how.target, wake=how.wake, source=SOURCES[how.source])
        self.sent.append(sent)

    def order(self, kind: Kind) -> None:
        id = MessageId(f"order-{len(self.orders)}")
        length = len(self.agent.session.events)
        message = UserMessage(id, ())
        delivery = Delivery(
            session_id=self.agent.id,
            message=message,
            target="next-step",
            wake=False,
            accepted_at=0,
            kind=kind,
            log_length=length,
        )
        self.orders.append(id)
        self.host.sessions.post(delivery)

    async def _maintain(self) -> None:
        gate = Gate()
        self.gates.append(gate)
        with suppress(AgentBusy):
            await self.agent.run_maintenance(gate.wait)


def reply(kind: str, gates: list[Gate]) -> Reply:
    gate = Gate()
    if kind.startswith("held"):
        gates.append(gate)
    match kind:
        case "calls":
            return calls(call("echo", words="x"), call("nothing"))
        case "held":
            return text("so far").hold_after(gate)
        case "held calls":
            return hold(gate, calls(call("echo", words="x")))
        case "refusal":
            return refuse()
        case "failure":
            return fail("auth")
        case "truncated":
            return truncated("cut", call("echo"))
        case "empty":
            return text("")
        case _:
            return text("ok")


@given(st.lists(actions, max_size=25), st.lists(st.sampled_from(REPLIES), max_size=25))
def test_no_message_is_lost_doubled_or_stranded(todo: list[Action], kinds: list[str]) -> None:
    anyio.run(explore, todo, kinds)


async def explore(todo: list[Action], kinds: list[str]) -> None:
    gates: list[Gate] = []
    script = iter(kinds)

    def answer(_: SeenRequest) -> Reply:
        return reply(next(script, "text"), gates)

    model, clock, home = ScriptedModel(), FakeClock(), MemoryHome()
    model.script(prompt("msg"), *[answer] * 200, every=True)
    async with scripted_host(model, store=MemoryStore(clock, home), clock=clock, tools=[echo]) as host:
        world = World(host, await start_agent(host), gates)
        for action in todo:
            await world.act(action)
            check_running(world.agent)
        while True:
            for _ in range(200):
                await anyio.lowlevel.checkpoint()
            if not gates:
                break
            gates.pop(0).open()
        await world.agent.wait_idle()
        await host.sessions.writer.committed()
        assert world.agent.failure is None
        for receipt in world.sent:
            await receipt
        await check_end(world, host.sessions.store)


def check_running(agent: Agent) -> None:
    """Nothing is stranded: what may run, runs."""
    if agent.session.mailbox.is_runnable and not (agent.is_closing or agent.session.mailbox.is_stopping):
        assert type(agent.phase).__name__ in ("Running", "Maintenance", "Opening")


async def check_end(world: World, store: SessionStore) -> None:
    session = world.agent.session
    rows = await store.read_rows(session.id)
    orders, rows = [r for r in rows if r.delivery.is_control], [r for r in rows if not r.delivery.is_control]
    assert [row.delivery.id for row in orders] == world.orders
    assert all(row.state != "pending" for row in orders), "each order is obeyed, or moot"
    entered = [event.data.id for event in session.events if isinstance(event.data, UserMessage)]
    assert sorted(row.delivery.id for row in rows) == sorted(world.ids), "each message has one row"
    assert len(entered) == len(set(entered)), "none is read twice"
    claimed = {row.delivery.id for row in rows if row.state == "claimed"}
    assert set(entered) <= claimed
    ends = {event.data.turn: event.data for event in session.events if isinstance(event.data, TurnEnd)}
    for row in rows:
        if row.state == "claimed" and row.delivery.id not in entered:
            assert row.turn is not None
            assert ends[row.turn].reason == "aborted", "a message that was taken and not read was in an aborted turn"
        if row.state == "withdrawn" and row.reason == "stopped":
            assert is_instruction(row.delivery), "stopping withdraws only what users and parents sent"
        if row.state == "pending":
            assert row.parked or not row.delivery.wake, "what may run has run"
    for row in orders:
        if row.state == "claimed" and row.delivery.kind == "interrupt":
            assert row.turn is not None
            assert ends[row.turn].reason != "completed", "an interrupt is answered by the turn that it ended"
    starts = [event.data.turn for event in session.events if isinstance(event.data, TurnStart)]
    assert starts == list(range(1, len(starts) + 1))
    assert sorted(ends) == starts, "everything that was started has ended"
    pending = [row for row in rows if row.state == "pending"]
    in_memory = {row.id: row.parked for row in (*session.mailbox.next_step, *session.mailbox.next_turn)}
    assert in_memory == {row.delivery.id: row.parked for row in pending}, "memory agrees with the store"
    stored = await store.read(session.id)
    assert stored.events == session.events
