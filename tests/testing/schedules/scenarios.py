"""Delegation in short scenarios, each around one pair of things that may happen in any order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import anyio

from retinue.agent.phase import Cause
from retinue.base.ids import MessageId, SessionId
from retinue.errors import StoreFailure
from retinue.host.approvals import APPROVALS, Answer, Question
from retinue.host.host import Host
from retinue.model.content import Source, Text, UserMessage
from retinue.session.events import ApprovalDecided, ToolStart
from retinue.session.folds import descriptor
from retinue.session.rows import Batch, Delivery, Insert, Unpark
from retinue.session.store import SessionStore
from retinue.subagent.lifecycle import SubagentStarted
from retinue.subagent.provider import RunRequest
from retinue.testing.schedules import Scenario, World
from retinue.testing.script import call, calls, fail, text, truncated
from tests.testing.schedules.stage import ROOT, above, answered_once, below, of, plays, quiet, root, stage

Act: TypeAlias = Callable[[SessionId], Awaitable[object] | None]

__all__ = ["CHECKS", "FAILING", "SCENARIOS"]


async def _go(world: World, host: Host) -> None:
    await (await root(host)).follow_up("go").wait()


async def parallel_background(world: World) -> None:
    plays(world, "R", calls(*[below(f"C{i}") for i in range(4)]))
    for i in range(4):
        plays(world, f"C{i}", text(f"answer {i}."))
    async with stage(world) as host:
        await _go(world, host)
        await quiet(world, host)


async def foreground_siblings(world: World) -> None:
    plays(world, "R", calls(*[below(f"C{i}", waits=True) for i in range(3)], below("B")))
    for i in range(3):
        plays(world, f"C{i}", calls(call("work", words=f"step of {i}")), text(f"answer {i}."))
    plays(world, "B", text("answer 3."))
    async with stage(world) as host:
        await _go(world, host)
        await quiet(world, host)


async def nested(world: World) -> None:
    plays(world, "R", calls(below("A"), below("F", waits=True)))
    plays(world, "A", calls(below("B"), below("B"), below("F", waits=True)), text("A waits."))
    plays(world, "B", calls(below("D")), text("B waits."))
    plays(world, "D", text("answer of D."))
    plays(world, "F", calls(below("D")), text("answer of F."))
    async with stage(world) as host:
        await _go(world, host)
        await quiet(world, host)


async def reports_and_settlement(world: World) -> None:
    plays(world, "R", calls(below("C0"), below("C1")))
    for i in range(2):
        plays(
            world,
            f"C{i}",
            calls(call("report", output=f"first of {i}."), call("report", output=f"second of {i}.")),
            calls(call("report", output=f"third of {i}.")),
            text(f"answer {i}."),
        )
    async with stage(world) as host:
        await _go(world, host)
        await quiet(world, host)


async def follow_up_and_settlement(world: World) -> None:
    plays(world, "R", calls(below("C"), below("C")))
    plays(world, "C", text("one."), calls(call("work", words="more")), text("two."))
    async with stage(world) as host:
        _to_each_child(world, host, "tell it more", lambda id: of(host).send(host.agents.list()[0], id, "more"), 2)
        await _go(world, host)
        await quiet(world, host)


async def interrupt_and_settlement(world: World) -> None:
    plays(world, "R", calls(below("C"), below("C")))
    plays(world, "C", calls(below("D"), call("work", words="slow")), text("one."), text("two."))
    plays(world, "D", calls(call("work", words="deep")), text("deep answer."))
    async with stage(world) as host:
        _to_each_child(world, host, "the user interrupts it", lambda id: of(host).interrupt(id, None))
        _to_each_child(
            world, host, "an ancestor interrupts it", lambda id: of(host).interrupt(id, host.agents.get(ROOT))
        )
        _to_each_child(world, host, "its parent tells it more", lambda id: _more(host, id))
        await _go(world, host)
        await quiet(world, host)


async def stop_and_settlement(world: World) -> None:
    """The user stops the root, which withdraws, and says something else."""
    plays(world, "R", calls(below("C"), below("C", waits=True)), calls(call("work", words="on")))
    plays(world, "C", calls(call("report", output="so far."), call("work", words="slow")), text("one."))
    async with stage(world) as host:
        agent = await root(host)
        world.meanwhile("user", "stops the root", lambda: agent.cancel(Cause("user")))
        world.meanwhile("user", "halts the root", lambda: agent.cancel(Cause("user"), keep_mailbox=True))
        world.meanwhile("user", "steers the root", lambda: agent.steer("now this").wait())
        world.meanwhile("user", "tells the root more", lambda: agent.follow_up("and that").wait())
        await _go(world, host)
        await quiet(world, host)


async def tasks_and_disposal(world: World) -> None:
    plays(
        world,
        "R",
        calls(*[call("one_shot", description="T", prompt="do T", run_in_background=True)] * 2, below("C")),
        calls(call("task_kill", task_id="subagent-1")),
        calls(call("task_output", task_id="subagent-2", timeout_ms=1000)),
    )
    plays(world, "T", calls(call("work", words="slow"), below("T2", waits=True)), text("task answer."))
    plays(world, "T2", text("inner answer."))
    plays(world, "C", calls(call("one_shot", description="T", prompt="do T", run_in_background=True)), text("C waits."))
    async with stage(world) as host:
        agent = await root(host)
        await _go(world, host)
        await world.moment("user", "disposes the root")
        await host.agents.dispose(agent)
        assert host.agents.list() == ()
        await quiet(world, host)


async def many_settle_together(world: World) -> None:
    plays(world, "R", calls(*[below("C") for _ in range(12)]))
    plays(world, "C", text("the answer."))
    async with stage(world) as host:
        await _go(world, host)
        await quiet(world, host)


async def two_slots(world: World) -> None:
    plays(world, "R", calls(*[below("A", waits=True), below("A"), below("B"), below("B")]))
    plays(world, "A", calls(below("B", waits=True), below("B", waits=True)), text("A's."))
    plays(world, "B", calls(below("D", waits=True)), text("B's."))
    plays(world, "D", text("D's."))
    async with stage(world, slots=2) as host:
        _to_each_child(world, host, "the user interrupts it", lambda id: of(host).interrupt(id, None), every=3)
        await _go(world, host)
        await quiet(world, host)


async def parent_in_maintenance(world: World) -> None:
    plays(world, "R", calls(below("C"), below("C")))
    plays(world, "C", calls(call("report", output="so far.")), text("the answer."))
    async with stage(world) as host:
        agent = await root(host)
        for number in range(3):
            world.meanwhile(
                "user",
                f"maintenance {number}",
                lambda: agent.run_maintenance(lambda: world.pause("maintenance", "is done")),
            )
        await _go(world, host)
        await quiet(world, host)


async def drain_and_starts(world: World) -> None:
    plays(world, "R", calls(below("A"), below("A")), calls(below("D")))
    plays(world, "A", calls(below("D"), call("report", output="so far.")), text("A waits."))
    plays(world, "D", calls(call("work", words="slow")), text("D's."))
    async with stage(world) as host:
        _to_each_child(world, host, "is told more", lambda id: _more(host, id))
        _to_each_child(world, host, "is released", lambda id: _release(host, id), every=2)
        await _go(world, host)
        await world.moment("user", "drains all")
        await of(host).drain_below(await root(host))
        await quiet(world, host)


async def a_host_starts_children(world: World) -> None:
    plays(world, "R")
    plays(world, "C", calls(call("report", output="so far.")), text("one."), fail("auth"))
    async with stage(world) as host:
        agent = await root(host)
        for number in range(3):
            request = RunRequest(parent=agent, prompt=(Text("do"),), label="C", child_id=SessionId(f"child-{number}"))
            world.meanwhile("host", f"starts child {number}", lambda request=request: of(host).start("spawn", request))
            _twice(world, host, number)
        await quiet(world, host)


def _twice(world: World, host: Host, number: int) -> None:
    for time in range(2):
        world.meanwhile("host", f"message {time} to child {number}", lambda: _more(host, SessionId(f"child-{number}")))


async def suspend_and_resume(world: World) -> None:
    plays(world, "R", calls(below("A"), below("F", waits=True)), calls(call("work", words="on")))
    plays(world, "A", calls(below("D"), call("report", output="so far.")), text("A waits."))
    plays(world, "D", calls(call("work", words="slow")), text("D's."))
    plays(world, "F", calls(call("work", words="slow"), below("D")), text("F's."))
    for number in range(3):
        async with stage(world) as host:
            agent = await root(host)
            if number == 0:
                await agent.follow_up("go").wait()
            if number == 1:
                agent.follow_up("go on")
            await world.moment("user", "suspends the host")
    await _end(world)


async def tasks_and_suspension(world: World) -> None:
    """One-shot runs in the background die with their process, and what they had started goes on."""
    background = call("one_shot", description="T", prompt="do T", run_in_background=True)
    plays(world, "R", calls(background, below("C")), calls(call("task_output", task_id="subagent-1", timeout_ms=1000)))
    plays(world, "T", calls(below("D"), call("work", words="slow")), text("T waits."), text("T's."))
    plays(world, "D", calls(call("work", words="slow"), call("report", output="so far.")), text("D's."))
    plays(world, "C", calls(background), text("C waits."))
    for number in range(2):
        async with stage(world) as host:
            agent = await root(host)
            if number == 0:
                await agent.follow_up("go").wait()
            await world.moment("user", "suspends the host")
    await _end(world)


async def refusals(world: World) -> None:
    plays(world, "R", calls(below("A"), below("F", waits=True)), calls(call("work", words="on")))
    plays(world, "A", calls(below("D"), call("report", output="so far.")), text("A waits."))
    plays(world, "D", truncated("D's."))
    plays(world, "F", calls(call("work", words="slow")), text("F's."))
    async with stage(world, refusals=2) as host:
        world.meanwhile("user", "starts it", lambda: _go(world, host))
        await world.wait_acted()
        await world.moment("user", "suspends the host")
    await _end(world)


async def messages_from_elsewhere(world: World) -> None:
    """Another process writes to children that work, settle or are away; what it missed is found on resume."""
    plays(world, "R", calls(below("C"), below("C")))
    plays(world, "C", calls(call("work", words="slow")), text("one."), text("two."))
    async with stage(world) as host:
        other = world.store()
        _to_each_child(world, host, "a message from elsewhere", lambda id: _insert(other, id, world.clock.now_ms()))
        _to_each_child(world, host, "the user interrupts it", lambda id: of(host).interrupt(id, None), every=2)
        await _go(world, host)
        await quiet(world, host)
        await other.aclose()
    await _end(world)


async def _insert(store: SessionStore, id: SessionId, now_ms: int) -> None:
    message = UserMessage(MessageId(f"elsewhere-{id}"), (Text("psst"),), Source(kind="user"))
    delivery = Delivery(session_id=id, message=message, target="next-turn", wake=True, accepted_at=now_ms)
    stored = anyio.Event()
    store.begin([Batch((Insert(delivery), Unpark(id)))], lambda _: stored.set())
    await stored.wait()


async def everything(world: World) -> None:
    """A deep tree, and whatever can be done to it, in two processes that end at some moment."""
    plays(world, "R", calls(below("A"), below("F", waits=True)), calls(below("A")), calls(call("work", words="on")))
    plays(world, "A", calls(below("D"), below("F", waits=True)), calls(call("report", output="so far.")), text("A's."))
    plays(world, "F", calls(below("D"), call("work", words="slow")), text("F's."))
    plays(world, "D", calls(call("work", words="deep")), fail("auth"))
    for number in range(2):
        async with stage(world, slots=3, refusals=1) as host:
            with suppress(StoreFailure):
                await _life(world, host, number)
            await world.moment("user", "suspends the host")
    await _end(world)


async def _life(world: World, host: Host, number: int) -> None:
    _to_each_child(world, host, "the user interrupts it", lambda id: of(host).interrupt(id, None), every=2)
    _to_each_child(world, host, "its parent tells it more", lambda id: _more(host, id), every=3)
    _to_each_child(world, host, "is released", lambda id: _release(host, id), every=5)
    agent = await root(host)
    world.meanwhile("user", f"stops the root {number}", lambda: agent.cancel(Cause("user")))
    world.meanwhile("user", f"maintains {number}", lambda: agent.run_maintenance(lambda: world.pause("it", "ends")))
    await agent.follow_up(f"go {number}").wait()


async def _end(world: World) -> None:
    """All that owes work is brought to its end by one more host."""
    async with stage(world) as host:
        await quiet(world, host)


def _to_each_child(
    world: World,
    host: Host,
    what: str,
    act: Callable[[SessionId], Awaitable[object] | None],
    times: int = 1,
    every: int = 1,
) -> None:
    """`act` is done to (every second, third, ...) child that starts from now on, at some moment after its start."""
    seen: list[SessionId] = []

    def started(event: SubagentStarted) -> None:
        if event.id not in seen:
            seen.append(event.id)
            if len(seen) % every == 0:
                for _ in range(times):
                    world.meanwhile(f"user of child {len(seen)}", what, lambda: act(event.id))

    host.bus.on(SubagentStarted, started)


async def _more(host: Host, id: SessionId) -> None:
    parent = above(host, id)
    if parent is not None:
        await of(host).send(parent, id, "more")


async def _release(host: Host, id: SessionId) -> None:
    parent = above(host, id)
    if parent is not None:
        await of(host).release(parent, [id])


class _User:
    """Answers every question at some moment: the children C0 and C2 may work, and C1 is stopped instead."""

    def __init__(self, world: World, host: Host) -> None:
        self._world = world
        self._host = host
        self._approvals = host.require(APPROVALS, needed_by="a test")
        self._approvals.answered_by(self)

    def asked(self, question: Question) -> None:
        for n in range(2):  # the second one comes too late, whatever it says
            self._world.meanwhile(f"user about {question.label}", f"answers ({n})", lambda: self._answer(question))

    def withdrawn(self, question: Question) -> None:
        assert question.id not in [one.id for one in self._approvals.open()]

    def _answer(self, question: Question) -> None:
        if question.label == "C1":
            of(self._host).interrupt(question.agent, None)
        else:
            self._approvals.answer(question.id, Answer(verb="allow"))


async def three_ask(world: World) -> None:
    """Their questions are answered in any order, before and after the host was suspended."""
    plays(world, "R", calls(*[below(f"C{i}") for i in range(3)]))
    for i in range(3):
        plays(world, f"C{i}", calls(call("work", words=f"work of {i}.")), text(f"answer {i}."))
    for number in range(2):
        async with stage(world, asks=["work"]) as host:
            _User(world, host)
            agent = await root(host)
            if number == 0:
                await agent.follow_up("go").wait()
                await world.moment("user", "suspends the host")
            else:
                await quiet(world, host)


SCENARIOS: tuple[Scenario, ...] = (
    parallel_background,
    foreground_siblings,
    nested,
    reports_and_settlement,
    follow_up_and_settlement,
    interrupt_and_settlement,
    stop_and_settlement,
    tasks_and_disposal,
    many_settle_together,
    two_slots,
    parent_in_maintenance,
    drain_and_starts,
    a_host_starts_children,
    suspend_and_resume,
    tasks_and_suspension,
    refusals,
    messages_from_elsewhere,
    three_ask,
    everything,
)

FAILING = (refusals, everything)
"""Their store refuses some batches."""


async def _four(world: World) -> None:
    await answered_once(world, *[f"answer {i}." for i in range(4)])


async def _reports(world: World) -> None:
    words = [f"{word} of {i}." for i in range(2) for word in ("first", "second", "third")]
    await answered_once(world, "answer 0.", "answer 1.", *words)


async def _granted_once(world: World) -> None:
    store = world.look()
    for summary in await store.children(ROOT):
        events = (await store.read(summary.header.id)).events
        made = descriptor(summary.header, events)
        starts = [event for event in events if isinstance(event.data, ToolStart)]
        allowed = [event for event in events if isinstance(event.data, ApprovalDecided)]
        assert len(starts) == len(allowed) <= (0 if made is not None and made.label == "C1" else 1)


CHECKS: dict[Scenario, Scenario] = {
    parallel_background: _four,
    foreground_siblings: _four,
    reports_and_settlement: _reports,
    three_ask: _granted_once,
}
