"""Messages to children: who may send them, when they run, and how a settled child comes back. Scenarios C20, C22."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from retinue.agent.signals import SessionStarted
from retinue.base.ids import MessageId, SessionId
from retinue.errors import (
    BadInput,
    IdConflict,
)
from retinue.session.events import RequestContext
from retinue.subagent.provider import PROVIDERS
from retinue.subagent.providers.spawn import SpawnProvider
from retinue.testing.clock import FakeClock
from retinue.testing.faults import appends
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import hold, text
from tests.scenarios.stock import (
    CONTINUABLE,
    Lifecycle,
    continuations,
    endings,
    listener,
    live,
    log,
    notices,
    quiet,
    rows,
    said_to,
    start,
    stock,
    ticks,
    types,
)
from tests.scenarios.stores import WatchedStore, home_file


async def test_c20_two_follow_ups_at_once_to_a_settled_child_resume_it_once(tmp_path: Path) -> None:
    model, gate, clock = ScriptedModel(), Gate(), FakeClock()
    listener(model)
    model.script("C", text("one"), text("x"), text("y"))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await quiet(app, agent)
        lifecycle, sources = Lifecycle(app), []
        app.host.bus.on(SessionStarted, lambda event: sources.append((event.agent.id, event.source)))
        ids: list[MessageId] = []

        async def send(what: str) -> None:
            ids.append(await continuations(app).send(agent, child, what))

        store.gate = gate
        async with anyio.create_task_group() as group:
            group.start_soon(send, "X")
            group.start_soon(send, "Y")
            await gate.wait_reached()
            gate.open()
        await quiet(app, agent)
        assert len(set(ids)) == 2
        assert sources == [(child, "resume")]
        assert lifecycle.seen == [("start", child), ("end", child)]
        assert [said_to(request)[-1] for request in model.requests("C")[1:]] == ["X", "Y"]
        assert len(await notices(app, agent.id)) == 2


async def test_c20_an_aborted_follow_up_leaves_nothing_and_the_next_one_resumes_the_child(tmp_path: Path) -> None:
    model, gate, clock = ScriptedModel(), Gate(), FakeClock()
    listener(model)
    model.script("C", text("one"), text("y"))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await quiet(app, agent)
        lifecycle = Lifecycle(app)
        store.gate = gate
        first = anyio.CancelScope()

        async def send_first() -> None:
            with first:
                await continuations(app).send(agent, child, "X")

        async with anyio.create_task_group() as group:
            group.start_soon(send_first)
            await gate.wait_reached()
            group.start_soon(continuations(app).send, agent, child, "Y")
            await ticks(5)
            first.cancel()
            await gate.wait_reached(2)
            gate.open()
        assert first.cancelled_caught
        await quiet(app, agent)
        assert lifecycle.seen == [("start", child), ("end", child)]
        assert [said_to(request)[-1] for request in model.requests("C")[1:]] == ["Y"]


async def test_a_message_to_a_child_at_work_is_its_next_turn_and_never_part_of_the_open_one(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", hold(gate, text("one")), text("two"), text("three"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await gate.wait_reached()
        await continuations(app).send(agent, child, "B")
        await continuations(app).send(agent, child, "D")
        gate.open()
        await quiet(app, agent)
        assert [said_to(request)[-1] for request in model.requests("C")] == ["P", "B", "D"]
        assert types(await log(app, child)).count("turn/start") == 3
        assert await endings(app, child) == ["completed"]
        sent = [row.delivery.message.source for row in await rows(app, child)][1:]
        assert [(s.kind, s.form, s.sender_session_id) for s in sent] == [("coordinator", "relay", agent.id)] * 2


async def test_a_message_to_a_child_that_waits_for_its_own_child_wakes_the_same_agent(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", text("waiting"), text("awake"), text("heard it"))
    model.script("G", hold(gate, text("grandchild")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")
        hold_back, undo = Gate(), None

        async def layer(step, inner):  # type: ignore[no-untyped-def]
            await hold_back.wait()
            return await inner(step)

        undo = app.host.chains.pre_step.wrap(layer)
        child = await start(app, agent)
        grandchild = await start(app, live(app, child), "G")
        hold_back.open()
        undo()
        await model.wait_requests(1, "C")
        same = live(app, child)
        await same.wait_idle()
        await ticks()
        assert await endings(app, child) == []
        await continuations(app).send(agent, child, "wake up")
        await model.wait_requests(2, "C")
        assert live(app, child) is same
        gate.open()
        await quiet(app, agent)
        assert lifecycle.seen == [("start", child), ("start", grandchild), ("end", grandchild), ("end", child)]


async def test_a_child_comes_back_from_its_descriptor_alone_when_its_provider_is_gone(tmp_path: Path) -> None:
    model = ScriptedModel()
    listener(model)
    model.script("C", text("one"), text("two"))

    class Shortlived(SpawnProvider):
        name = "shortlived"

    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        providers = app.host.require(PROVIDERS, needed_by="a test")
        with providers.add(Shortlived(app.host.agents)):
            from retinue.model.content import Text
            from retinue.session.events import ToolFilter
            from retinue.subagent.provider import RunRequest

            made = RunRequest(
                parent=agent,
                prompt=(Text("P"),),
                label="C",
                persona="You are a mole.",
                tool_filter=ToolFilter(allow=("read",)),
            )
            accepted = await continuations(app).start("shortlived", made)
            await quiet(app, agent)
        await continuations(app).send(agent, accepted.child_id, "again")
        await quiet(app, agent)
        before, after = model.requests("C")
        assert after.system == before.system
        assert after.tool_names == before.tool_names
        assert after.system.startswith("You are a mole.")
        events = await log(app, accepted.child_id)
        assert types(events).count("subagent/descriptor") == 1
        assert types(events).count("sandbox/mode") <= 1
        assert [e.data.provider for e in events if isinstance(e.data, RequestContext)] == ["scripted"]


async def test_the_same_message_again_changes_nothing_and_another_under_its_id_is_refused(tmp_path: Path) -> None:
    model = ScriptedModel()
    listener(model)
    model.script("C", text("one"), text("two"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await quiet(app, agent)
        for _ in range(2):
            await continuations(app).send(agent, child, "again", message_id=MessageId("key"))
            await quiet(app, agent)
        with pytest.raises(IdConflict):
            await continuations(app).send(agent, child, "other", message_id=MessageId("key"))
        with pytest.raises(BadInput):
            await continuations(app).send(agent, child, " \n")
        await quiet(app, agent)
        assert len(model.requests("C")) == 2
        assert len(await notices(app, agent.id)) == 2


async def test_a_message_that_commits_while_the_child_is_taken_down_goes_on_with_the_same_activation(
    tmp_path: Path,
) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", text("one"), text("two"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")
        child = await start(app, agent)
        live(app, child).scope.push_async_callback(gate.wait)
        await gate.wait_reached()
        id = await continuations(app).send(agent, child, "not yet")
        assert id in {row.delivery.id for row in await rows(app, child)}
        gate.open()
        await quiet(app, agent)
        assert await endings(app, child) == ["completed"]
        assert "two" in (await notices(app, agent.id))[0]
        assert lifecycle.seen == [("start", child), ("end", child)]


async def test_a_message_that_commits_together_with_the_settlement_opens_a_new_activation(tmp_path: Path) -> None:
    model, clock, commit = ScriptedModel(), FakeClock(), Gate()
    listener(model)
    model.script("C", text("one"), text("two"))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        lifecycle = Lifecycle(app)
        agent = await app.agent(label="R")
        child = await start(app, agent)
        store.hold(appends("subagent/settled"), commit)
        await commit.wait_reached()
        async with anyio.create_task_group() as group:
            group.start_soon(continuations(app).send, agent, child, "just too late")
            await ticks()
            commit.open()
        await quiet(app, agent)
        assert await endings(app, child) == ["completed", "completed"]
        assert lifecycle.seen == [("start", child), ("end", child)] * 2
        assert len({run for _, run in lifecycle.runs}) == 2
        assert [said_to(request)[-1] for request in model.requests("C")] == ["P", "just too late"]


async def test_a_message_of_another_process_that_arrives_at_the_settlement_is_run_in_the_same_activation(
    tmp_path: Path,
) -> None:
    model, clock, commit = ScriptedModel(), FakeClock(), Gate()
    listener(model)
    model.script("C", text("one"), text("two"))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        store.hold(appends("subagent/settled"), commit)
        await commit.wait_reached()
        await insert_as_another_process(tmp_path, child, "from elsewhere")
        commit.open()
        await quiet(app, agent)
        assert [said_to(request)[-1] for request in model.requests("C")] == ["P", "from elsewhere"]
        assert await endings(app, child) == ["completed"]
        assert len(await notices(app, agent.id)) == 1


async def insert_as_another_process(folder: Path, id: SessionId, words: str) -> None:
    """A row that this process does not know of."""
    from retinue.model.content import Text, UserMessage
    from retinue.session.rows import Batch, Delivery, Insert
    from retinue.store.sqlite import SqliteStore

    message = UserMessage(MessageId(f"foreign-{words}"), (Text(words),))
    delivery = Delivery(session_id=id, message=message, target="next-turn", wake=True, accepted_at=0)
    other = SqliteStore.open(home_file(folder), FakeClock())
    done = anyio.Event()
    other.begin([Batch((Insert(delivery),))], lambda _: done.set())
    await done.wait()
    await other.aclose()
