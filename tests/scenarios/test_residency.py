"""When a child counts as at work, how long its parent waits for it, and what a new process makes of what it finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from retinue.agent.agent import Agent
from retinue.agent.signals import StatusChanged
from retinue.errors import CorruptSession
from retinue.session.events import Descriptor, RequestContext, TurnEnd
from retinue.testing.clock import FakeClock
from retinue.testing.faults import appends
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, text
from tests.scenarios.stock import (
    CONTINUABLE,
    Lifecycle,
    children,
    continuations,
    endings,
    listener,
    live,
    log,
    notices,
    quiet,
    start,
    stock,
    ticks,
)
from tests.scenarios.stores import WatchedStore


async def test_a_child_settles_after_maintenance_although_its_status_never_changed(tmp_path: Path) -> None:
    model, maintenance, gate = ScriptedModel(), Gate(), Gate()
    listener(model)
    model.script("C", hold(gate, text("one")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await gate.wait_reached()
        same = live(app, child)

        def maintain(event: object) -> None:
            if same.status == "idle" and not maintenance.reached:
                app.host.start(lambda: same.run_maintenance(maintenance.wait))

        same.bus.on(StatusChanged, maintain)
        gate.open()
        await ticks()
        if maintenance.reached:
            assert await endings(app, child) == []
        maintenance.open()
        await quiet(app, agent)
        assert await endings(app, child) == ["completed"]


async def test_a_parent_waits_for_a_grandchild_that_a_message_is_about_to_bring_back(tmp_path: Path) -> None:
    model, clock, commit = ScriptedModel(), FakeClock(), Gate()
    listener(model)
    c = model.script("C", calls(call("subagent", description="G", prompt="Q")), text("waiting"), text("G is done"))
    model.script("G", text("first"), text("second"))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await quiet(app, agent)
        (grandchild,) = await children(app, child)
        c.add(calls(call("send_message", subagent_id=grandchild, message="more")), text("waiting"), text("G again"))
        store.hold(lambda batch: any(getattr(op, "session_id", "") == grandchild for op in batch.ops), commit)
        lifecycle.seen.clear()
        await continuations(app).send(agent, child, "ask it")
        await commit.wait_reached()
        await ticks()
        commit.open()
        await quiet(app, agent)
        order = [("start", child), ("start", grandchild), ("end", grandchild), ("end", child)]
        assert lifecycle.seen == order
        assert await endings(app, child) == ["completed", "completed"]
        assert "G again" in (await notices(app, agent.id))[-1]


async def test_a_process_that_ends_settles_nothing_and_the_next_one_goes_on_where_it_stood(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", calls(call("subagent", description="G", prompt="Q")), text("waiting"), text("G is done"))
    model.script("G", hold(gate, text("never")), text("late"))
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await gate.wait_reached()
        await live(app, child).wait_idle()
        first = Lifecycle(app)
    assert first.seen == []
    listener(model, agent.id)
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        lifecycle = Lifecycle(app)
        run = await app.resume(agent.id)
        await run.result()
        (grandchild,) = await children(app, child)
        order = [("start", child), ("start", grandchild), ("end", grandchild), ("end", child)]
        assert lifecycle.seen == order
        assert await endings(app, child) == ["completed"]
        turns = [event.data for event in await log(app, agent.id) if isinstance(event.data, TurnEnd)]
        assert len(turns) == 1, "nobody was woken for nothing"
        assert "late" in str(model.requests("C")[-1].messages)


async def test_a_child_that_was_not_asked_anything_yet_resumes_with_the_model_of_its_descriptor(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", text("one"))

    async def layer(step, inner):  # type: ignore[no-untyped-def]
        if step.agent.label == "C":
            await gate.wait()
        return await inner(step)

    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app:
        app.host.chains.pre_step.wrap(layer)
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await gate.wait_reached()
    listener(model, agent.id)
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        run = await app.resume(agent.id)
        await run.result()
        contexts = [event.data for event in await log(app, child) if isinstance(event.data, RequestContext)]
        assert [(context.provider, context.model) for context in contexts] == [("scripted", "model-1")]
        assert await endings(app, child) == ["completed"]


async def test_a_child_that_cannot_be_built_again_settles_as_failed_and_holds_up_nobody(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    for label in "ABD":
        model.script(label, text("so far").hold_after(gate), text(f"{label} went on"))
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app:
        agent = await app.agent(label="R")
        a, b = await start(app, agent, "A"), await start(app, agent, "B")
        d = await start(app, live(app, a), "D")
        await gate.wait_reached(3)
    listener(model, agent.id)
    for script in model._scripts:  # pyright: ignore[reportPrivateUsage]
        if script.key == "A":
            script.replies = script.replies[:1]
        if script.key == "D":
            script.replies = script.replies[:1]
    async with stock(model, tmp_path, *CONTINUABLE) as app:

        async def picky(child: Agent, made: Descriptor) -> Callable[[], None]:
            if made.label == "A":
                raise ValueError("its tools are not here")
            return lambda: None

        continuations(app).contribute(picky)
        run = await app.resume(agent.id)
        await run.result()
        assert await endings(app, a) == ["error"]
        assert await endings(app, b) == ["completed"]
        assert await endings(app, d) == ["aborted"]
        told = await notices(app, agent.id)
        assert len(told) == 2
        assert any("its tools are not here" in notice for notice in told)
        assert app.host.agents.list() == (run.agent,)


async def test_a_child_that_cannot_be_read_keeps_no_other_from_coming_back(tmp_path: Path) -> None:
    model, gate, clock = ScriptedModel(), Gate(), FakeClock()
    listener(model)
    model.script("A", text("so far").hold_after(gate))
    model.script("B", text("so far").hold_after(gate), text("B went on"))
    async with stock(
        model, tmp_path, *CONTINUABLE, at_rest=False, store=WatchedStore(tmp_path, clock), clock=clock
    ) as app:
        agent = await app.agent(label="R")
        a, b = await start(app, agent, "A"), await start(app, agent, "B")
        await gate.wait_reached(2)
    listener(model, agent.id)
    store = WatchedStore(tmp_path, clock)
    store.spoilt[a] = CorruptSession("torn")
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False, store=store, clock=clock) as app:
        run = await app.resume(agent.id)
        await run.result()
        assert await endings(app, b) == ["completed"]
        store.spoilt.clear()
        assert await endings(app, a) == []


async def test_a_child_whose_batch_the_store_refuses_is_built_again_and_its_own_children_live_on(
    tmp_path: Path,
) -> None:
    model, gate, clock = ScriptedModel(), Gate(), FakeClock()
    listener(model)
    c = model.script("C", calls(call("subagent", description="G", prompt="Q")), text("waiting"))
    model.script("G", hold(gate, text("g")))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await gate.wait_reached()
        first = live(app, child)
        await first.wait_idle()
        store.refuse(lambda batch: any(getattr(op, "turn", None) == 2 for op in batch.ops))
        c.add(text("more"), text("G is done"))
        await continuations(app).send(agent, child, "are you there?")
        await model.wait_requests(3, "C")
        assert live(app, child) is not first
        (grandchild,) = await children(app, child)
        assert continuations(app).resident(grandchild) is not None
        gate.open()
        await quiet(app, agent)
        assert lifecycle.seen == [("start", child), ("start", grandchild), ("end", grandchild), ("end", child)]


async def test_a_store_that_takes_nothing_more_leaves_children_open_and_spins_no_loop(tmp_path: Path) -> None:
    model, gate, clock = ScriptedModel(), Gate(), FakeClock()
    listener(model)
    model.script("C", hold(gate, text("one")))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False, store=store, clock=clock) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await gate.wait_reached()
        store.die(lambda batch: True)
        gate.open()
        await continuations(app).wait_settled(child)
        tried = len(store.batches)
        await ticks(200)
        assert len(store.batches) == tried
        assert lifecycle.seen == [("start", child)]
        assert app.host.agents.get(child) is None


async def test_a_parent_that_lost_track_of_a_child_brings_it_back_before_it_settles(tmp_path: Path) -> None:
    model, clock = ScriptedModel(), FakeClock()
    listener(model)
    c = model.script("C", calls(call("subagent", description="G", prompt="Q")), text("waiting"))
    model.script("G", text("g"))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        agent = await app.agent(label="R")
        for _ in range(4):
            store.refuse(lambda batch: appends("subagent/settled")(batch) and settles(batch, "G"))
        c.add(text("G is done"))
        child = await start(app, agent)
        await quiet(app, agent)
        (grandchild,) = await children(app, child)
        assert await endings(app, grandchild) == ["completed"]
        assert await endings(app, child) == ["completed"]


def settles(batch: object, label: str) -> bool:
    """The batch holds the notice of the child with that label."""
    return any(
        f"({label})" in str(getattr(getattr(op, "delivery", None), "message", "")) for op in getattr(batch, "ops", ())
    )
