"""Interrupts and drains: who may stop whom, in which order children go, and what stays for later."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from retinue.agent.agent import Agent
from retinue.agent.signals import AgentDisposed
from retinue.base.ids import SessionId
from retinue.compose.app import App
from retinue.errors import ActivationClosing, ActivationTeardownFailed, AgentClosing, Draining, Unauthorized
from retinue.session.events import TurnEnd
from retinue.testing.clock import FakeClock
from retinue.testing.faults import appends
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, text
from tests.scenarios.stock import (
    CONTINUABLE,
    Lifecycle,
    chain,
    continuations,
    endings,
    listener,
    live,
    log,
    notices,
    quiet,
    rows,
    said_to,
    settled,
    start,
    stock,
    ticks,
)
from tests.scenarios.stores import WatchedStore


class Order:
    """Who left the registry, in order."""

    def __init__(self, app: App) -> None:
        self.gone: list[str] = []
        app.host.bus.on(AgentDisposed, lambda event: self.gone.append(event.agent.label))


async def test_a_drain_stops_all_below_at_once_and_lets_children_go_before_their_parents(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent, order, lifecycle = await app.agent(label="R"), Order(app), Lifecycle(app)
        ids = await chain(app, agent, "ABC", model, gate)
        await continuations(app).send(agent, ids[0], "for later")
        await continuations(app).drain_below(agent)
        assert order.gone == ["C", "B", "A"]
        assert [id for what, id in lifecycle.seen if what == "end"] == ids[::-1]
        for id in ids:
            assert await endings(app, id) == ["aborted"]
            end = next(event.data for event in await log(app, id) if isinstance(event.data, TurnEnd))
            assert (end.reason, end.cause) == ("aborted", "parent")
        assert agent.status == "idle"
        assert model.requests("R") == (), "who drains is not woken by what it drained"
        (notice,) = await notices(app, agent.id)
        assert "1 message is still queued" in notice
        assert "A so far" in notice
        with pytest.raises(Draining):
            await start(app, agent)
        await agent.follow_up("what is left?").wait()
        await quiet(app, agent)
        assert said_to(model.requests("R")[0])[-2:] == [notice, "what is left?"]
        parked = [row.delivery.message.source.kind for row in await rows(app, ids[0]) if row.parked]
        assert parked == ["coordinator"]


async def test_disposing_a_root_drains_it_child_first_and_its_children_can_be_resumed_with_it(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent, order = await app.agent(label="R"), Order(app)
        a, _ = await chain(app, agent, "AB", model, gate, A=text("I am back"))
        await app.close(agent)
        assert order.gone == ["B", "A", "R"]
        assert model.requests("R") == ()
        listener(model, agent.id)
        run = await app.resume(agent.id, "hello again")
        await run.result()
        await continuations(app).send(run.agent, a, "go on")
        await quiet(app, run.agent)
        assert await endings(app, a) == ["aborted", "completed"]


async def test_disposing_the_agent_of_a_child_settles_it_and_drains_what_is_below(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent, order = await app.agent(label="R"), Order(app)
        a, b, c = await chain(app, agent, "ABC", model, gate, A=text("B was stopped"))
        await app.host.agents.dispose(live(app, b))
        assert order.gone == ["C", "B"]
        await settled(app, b)
        assert [await endings(app, id) for id in (a, b, c)] == [[], ["aborted"], ["aborted"]]
        assert app.host.agents.get(b) is None
        gate.open()
        await quiet(app, agent)


async def test_a_scoped_drain_leaves_other_trees_and_a_stale_parent_alone(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    listener(model, "Q")
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent, other = await app.agent(label="R"), await app.agent(label="Q")
        (a,) = await chain(app, agent, "A", model, gate)
        model.script("X", hold(gate, text("x")))
        x = await start(app, other, "X")
        double = Agent(app.host.environment, agent.session, agent.options)
        agent.session.driver = agent
        await continuations(app).drain_below(double)
        assert continuations(app).resident(a) is not None
        await continuations(app).drain_below(agent)
        assert continuations(app).resident(a) is None
        assert continuations(app).resident(x) is not None
        model.script("Y", text("y"))
        await settled(app, await start(app, other, "Y"))
        gate.open()
        await quiet(app, other)
        assert await endings(app, x) == ["completed"]


async def test_a_selected_drain_releases_named_children_alone_and_wakes_none_that_it_releases(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        a, b = await chain(app, agent, "AB", model, gate)
        model.script("S", hold(gate, text("s")))
        s = await start(app, agent, "S")
        with pytest.raises(Unauthorized):
            await continuations(app).release(agent, [a, b])
        assert continuations(app).resident(a) is not None
        double = Agent(app.host.environment, agent.session, agent.options)
        agent.session.driver = agent
        with pytest.raises(Unauthorized):
            await continuations(app).release(double, [a])
        await continuations(app).release(agent, [a, SessionId("nobody")])
        assert [await endings(app, id) for id in (a, b, s)] == [["aborted"], ["aborted"], []]
        assert len(model.requests("A")) == 1, "the notice of its own child did not wake it"
        gate.open()
        await quiet(app, agent)
        assert len(await notices(app, agent.id)) == 2


async def test_a_report_that_waits_for_a_parent_does_not_keep_a_drain_from_ending(tmp_path: Path) -> None:
    model, gate, hidden = ScriptedModel(), Gate(), Gate()
    listener(model)
    model.script("A", text("so far").hold_after(hidden))
    model.script("B", hold(gate, calls(call("report", output="early"))), text("bye"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        a = await start(app, agent, "A")
        await hidden.wait_reached()
        b = await start(app, live(app, a), "B")
        gate.open()
        await settled(app, b)
        assert live(app, a).session.mailbox.is_runnable
        await continuations(app).drain_below(agent)
        assert await endings(app, a) == ["aborted"]
        assert app.host.agents.list() == (agent,)
        left = [row for row in await rows(app, a) if row.state == "pending"]
        assert [(row.delivery.wake, row.parked) for row in left] == [(False, False)] * 2


async def test_a_drain_waits_for_a_child_that_is_about_to_come_back_and_parks_its_message(tmp_path: Path) -> None:
    model, clock, commit = ScriptedModel(), FakeClock(), Gate()
    listener(model)
    model.script("C", text("one"), text("two"), text("three"))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await quiet(app, agent)
        store.hold(lambda batch: True, commit)
        async with anyio.create_task_group() as group:
            group.start_soon(continuations(app).send, agent, child, "again")
            await commit.wait_reached()
            group.start_soon(continuations(app).drain_below, agent)
            await ticks()
            commit.open()
        assert app.host.agents.list() == (agent,)
        assert len(model.requests("C")) == 1
        assert await endings(app, child) == ["completed", "aborted"]
        assert "1 message is still queued" in (await notices(app, agent.id))[1]
        await app.close(agent)
        listener(model, agent.id)
        run = await app.resume(agent.id, "hello")
        await run.result()
        await continuations(app).send(run.agent, child, "now")
        await quiet(app, run.agent)
        assert [said_to(request)[-1] for request in model.requests("C")[1:]] == ["again", "now"]


async def test_a_drain_of_everything_takes_every_tree_and_takes_nothing_more(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    listener(model, "Q")
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent, other = await app.agent(label="R"), await app.agent(label="Q")
        await chain(app, agent, "AB", model, gate)
        model.script("X", hold(gate, text("x")))
        await start(app, other, "X")
        await continuations(app).drain()
        assert app.host.agents.list() == (agent, other)
        with pytest.raises(Draining):
            await start(app, agent)


async def test_what_fails_at_teardown_is_collected_and_the_settlement_says_so_without_the_output(
    tmp_path: Path,
) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)

    async def broken(what: str) -> None:
        raise ValueError(f"{what} would not go")

    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent, order = await app.agent(label="R"), Order(app)
        a, b = await chain(app, agent, "AB", model, gate)
        model.script("S", hold(gate, text("s")))
        s = await start(app, agent, "S")
        live(app, b).scope.push_async_callback(broken, "a pipe")
        live(app, a).scope.push_async_callback(broken, "a lock")
        with pytest.raises(ActivationTeardownFailed, match=r"a (lock|pipe).*a (lock|pipe)"):
            await continuations(app).drain_below(agent)
        assert order.gone[-2:] == ["B", "A"] or set(order.gone) == {"A", "B", "S"}
        assert [await endings(app, id) for id in (a, b, s)] == [["error"], ["error"], ["aborted"]]
        notice = next(one for one in await notices(app, agent.id) if "(A)" in one)
        assert "ACTIVATION_TEARDOWN_FAILED" in notice
        assert "A so far" not in notice
        end = (await log(app, a))[-1].data
        assert "a pipe" in str(end)
        assert "a lock" in str(end)


async def test_a_child_whose_scope_fails_to_close_after_its_work_has_failed(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", text("I see"))
    model.script("C", text("all good"))

    async def broken() -> None:
        raise ValueError("the disk stayed busy")

    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        live(app, child).scope.push_async_callback(broken)
        await quiet(app, agent)
        assert await endings(app, child) == ["error"]
        (notice,) = await notices(app, agent.id)
        assert "the disk stayed busy" in notice
        assert "all good" not in notice
        assert app.host.agents.list() == (agent,)


async def test_a_settlement_that_the_store_refuses_is_tried_again_and_told_once(tmp_path: Path) -> None:
    model, clock = ScriptedModel(), FakeClock()
    listener(model)
    model.script("C", text("one"))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")
        store.refuse(appends("subagent/settled"))
        child = await start(app, agent)
        await quiet(app, agent)
        assert await endings(app, child) == ["completed"]
        assert len(await notices(app, agent.id)) == 1
        assert lifecycle.seen == [("start", child), ("end", child)]


async def test_a_settlement_that_is_never_taken_is_left_to_the_next_process(tmp_path: Path) -> None:
    model, clock = ScriptedModel(), FakeClock()
    listener(model)
    model.script("C", text("one"))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock, at_rest=False) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")
        for _ in range(20):
            store.refuse(appends("subagent/settled"))
        child = await start(app, agent)
        await quiet(app, agent)
        assert lifecycle.seen == [("start", child)], "nothing is said"
        assert await endings(app, child) == []
    async with stock(model, tmp_path, *CONTINUABLE, store=WatchedStore(tmp_path, clock), clock=clock) as app:
        listener(model, agent.id)
        run = await app.resume(agent.id)
        await run.result()
        assert await endings(app, child) == ["completed"]
        assert len(await notices(app, agent.id)) == 1
    assert len(model.requests("C")) == 1


@pytest.mark.timeout(10)
async def test_a_host_that_is_going_leaves_nobody_waiting_for_an_end(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app:
        agent = await app.agent(label="R")
        a, b = await chain(app, agent, "AB", model, gate)
        async with anyio.create_task_group() as group:
            group.start_soon(continuations(app).wait_settled, a)
            group.start_soon(continuations(app).release, agent, [a])
            group.start_soon(app.host.suspend)
        await continuations(app).wait_settled(b)
        await continuations(app).release(agent, [a])
        await continuations(app).drain()
        assert await endings(app, a) == []


async def test_a_host_that_has_stopped_takes_nothing_more(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app:
        agent = await app.agent(label="R")
        (child,) = await chain(app, agent, "A", model, gate)
        await app.host.suspend()
        with pytest.raises(ActivationClosing):
            await continuations(app).send(agent, child, "too late")
        with pytest.raises(ActivationClosing):
            await start(app, agent, "B")
        with pytest.raises(AgentClosing):
            agent.follow_up("too late")
        with pytest.raises(AgentClosing):
            await app.agent()
