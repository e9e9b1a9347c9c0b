"""`list_agents`: what it shows of live and stored children, in which words and order, and that it disturbs nobody."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec
import pytest

from retinue.base.chain import Next
from retinue.base.ids import SessionId
from retinue.errors import CorruptSession, StoreFailure
from retinue.session.events import SessionHeader
from retinue.session.session import Session
from retinue.subagent.listing import list_children, render_entries
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, optional, text
from retinue.tools.pipeline import ToolRequest
from retinue.tools.tool import ToolResult
from tests.scenarios.stock import CONTINUABLE, children, continuations, listener, live, quiet, settled, start, stock
from tests.scenarios.stores import WatchedStore
from tests.session.tables import create_root


async def test_the_listing_shows_states_in_exact_words_and_loads_nobody(tmp_path: Path) -> None:
    model, gate, clock = ScriptedModel(), Gate(), FakeClock()
    root = model.script("R", text("A is done"))
    model.script("A", text("a"))
    model.script("B", text("waiting"), text("heard"))
    model.script("G", hold(gate, text("g")))
    model.script("F", hold(gate, text("f")))
    async with stock(model, tmp_path, *CONTINUABLE, clock=clock) as app:
        agent = await app.agent(label="R")
        a = await start(app, agent, "A")
        await quiet(app, agent)
        await clock.advance(1)
        held = Gate()
        undo = app.host.chains.pre_step.wrap(lambda step, inner: _held(step, inner, held))
        b = await start(app, agent, "B")
        g = await start(app, live(app, b), "G")
        undo()
        held.open()
        await gate.wait_reached()
        await live(app, b).wait_idle()
        await clock.advance(1)
        root.add(
            calls(
                call("subagent", description="F", prompt="P", run_in_background=False),
                call("list_agents"),
                call("list_agents", scope="descendants"),
            ),
            text("seen"),
            text("noted"),
        )
        before = app.host.agents.list()
        await agent.follow_up("look").wait()
        await gate.wait_reached(2)
        shown = render_entries(
            await list_children(app.host, continuations(app), agent.id, scope="children"), scope="children"
        )
        assert shown == f"{a} [ready] — A\n{b} [idle] — B"
        tree = render_entries(
            await list_children(app.host, continuations(app), agent.id, scope="descendants"), scope="descendants"
        )
        assert tree.splitlines() == [
            f"{a} [ready] parent={agent.id} depth=1 — A",
            f"{b} [idle] parent={agent.id} depth=1 — B",
            f"{g} [running] parent={b} depth=2 — G",
        ]
        assert set(before) <= set(app.host.agents.list())
        assert app.host.agents.get(a) is None
        gate.open()
        await quiet(app, agent)
        assert model.requests("R")[2].results[-2].splitlines()[0] == f"{a} [ready] — A"


async def _held(step, inner, held):  # type: ignore[no-untyped-def]
    if step.agent.label == "B":
        await held.wait()
    return await inner(step)


async def test_nobody_is_an_answer_too_and_the_description_warns(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("list_agents")), text("alone"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        assert model.requests("R")[1].results == ("(no subagents)",)
        description = next(spec.description for spec in model.requests("R")[0].tools if spec.name == "list_agents")
        for warning in ("snapshot", "Do not use it to wait", "only interrupt"):
            assert warning in description


async def test_as_a_value_each_entry_says_its_kind_and_only_descendants_say_their_place(tmp_path: Path) -> None:
    model, clock, values = ScriptedModel(), FakeClock(), list[object]()
    look = calls(call("list_agents"), call("list_agents", scope="descendants"))
    model.script("R", *[optional(text("noted"))] * 2, look, text("seen"))
    model.script("A", text("a"))
    model.script("B", text("b"))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        agent = await app.agent(label="R")
        ids: list[SessionId] = []
        for label in ("A", "B"):
            ids.append(await start(app, agent, label))
            await quiet(app, agent)
            await clock.advance(1)

        async def note(request: ToolRequest, inner: Next[ToolRequest, ToolResult]) -> ToolResult:
            result = await inner(request)
            values.append(result.value)
            return result

        app.host.chains.tool_call.wrap(note)
        store.spoilt[ids[1]] = StoreFailure("no answer")
        await agent.follow_up("look").wait()
        await agent.wait_idle()
        store.spoilt.clear()
    child: dict[str, object] = {"kind": "child", "id": ids[0], "label": "A", "status": "ready"}
    unread: dict[str, object] = {"kind": "diagnostic", "id": ids[1], "reason": "unavailable"}
    place = {"parent": agent.id, "depth": 1}
    assert values == [[child, unread], [child | place, unread | place]]


async def test_children_that_cannot_be_shown_are_diagnosed_one_by_one_and_tried_again(tmp_path: Path) -> None:
    model, clock = ScriptedModel(), FakeClock()
    listener(model)
    for label in "ABCD":
        model.script(label, text(label.lower()))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        agent = await app.agent(label="R")
        ids: list[SessionId] = []
        for label in "ABCD":
            ids.append(await start(app, agent, label))
            await settled(app, ids[-1])
            await clock.advance(1)
        a, b, c, d = ids
        await quiet(app, agent)

        async def shown() -> list[str]:
            return render_entries(
                await list_children(app.host, continuations(app), agent.id, scope="children"), scope="children"
            ).splitlines()

        store.spoilt = {a: CorruptSession("torn"), b: StoreFailure("no answer")}
        whole = await store.inner.read(c)
        moved = msgspec.structs.replace(whole.header, parent_session=SessionId("somebody"))
        store.changed[c] = msgspec.structs.replace(whole, header=moved)
        bare = await store.inner.read(d)
        store.changed[d] = msgspec.structs.replace(bare, events=[])
        assert await shown() == [
            f"{a} [diagnostic: corrupt]",
            f"{b} [diagnostic: unavailable]",
            f"{c} [diagnostic: corrupt]",
            f"{d} [diagnostic: corrupt]",
        ]
        store.spoilt, store.changed = {}, {}
        assert await shown() == [f"{id} [ready] — {label}" for id, label in zip(ids, "ABCD", strict=True)]
        store.enumeration = StoreFailure("no answer at all")
        with pytest.raises(StoreFailure):
            await shown()
        store.enumeration = None


async def test_at_most_four_logs_are_read_at_once_and_the_order_stays(tmp_path: Path) -> None:
    model, gate, clock = ScriptedModel(), Gate(), FakeClock()
    listener(model)
    labels = [f"child {i}" for i in range(9)]
    for label in labels:
        model.script(label, text("done"))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        agent = await app.agent(label="R")
        for label in labels:
            await settled(app, await start(app, agent, label))
            await clock.advance(1)
        await quiet(app, agent)
        store.gate, store.most_at_once = gate, 0
        lines: list[str] = []

        async def look() -> None:
            entries = await list_children(app.host, continuations(app), agent.id, scope="children")
            lines.extend(render_entries(entries, scope="children").splitlines())

        async with anyio.create_task_group() as group:
            group.start_soon(look)
            await gate.wait_reached(4)
            assert store.reading == 4
            gate.open()
        assert store.most_at_once == 4
        assert [line.split(" — ")[1] for line in lines] == labels


async def test_one_shot_children_and_forks_are_walked_through_and_left_out(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("R", calls(call("subagent", description="O", prompt="P", run_in_background=False)), text("done"))
    model.script("O", calls(call("subagent", description="G", prompt="P")), text("waiting"), text("all done"))
    model.script("G", text("g"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await quiet(app, agent)
        (once,) = await children(app, agent.id)
        (g,) = await children(app, once)
        sessions = app.host.sessions
        fork = SessionHeader(id=SessionId("a-fork"), created_at=0, parent_session=agent.id)
        _, receipt = await create_root(sessions, fork)
        await receipt.wait()
        entries = await list_children(app.host, continuations(app), agent.id, scope="children")
        assert entries == []
        deep = await list_children(app.host, continuations(app), agent.id, scope="descendants")
        assert render_entries(deep, scope="descendants") == f"{g} [ready] parent={once} depth=2 — G"
        assert isinstance(sessions.live(fork.id), Session)
        gate.open()


async def test_a_child_that_is_being_created_is_left_out(tmp_path: Path) -> None:
    model, clock, commit = ScriptedModel(), FakeClock(), Gate()
    listener(model)
    model.script("C", text("one"))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        agent = await app.agent(label="R")
        store.hold(lambda batch: True, commit)
        async with anyio.create_task_group() as group:
            group.start_soon(start, app, agent)
            await commit.wait_reached()
            assert await list_children(app.host, continuations(app), agent.id, scope="children") == []
            commit.open()
        await quiet(app, agent)
        (entry,) = await list_children(app.host, continuations(app), agent.id, scope="children")
        assert entry.parent == agent.id


async def test_a_listing_can_be_cancelled(tmp_path: Path) -> None:
    model, gate, clock = ScriptedModel(), Gate(), FakeClock()
    listener(model)
    model.script("C", text("one"))
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        agent = await app.agent(label="R")
        await settled(app, await start(app, agent))
        await quiet(app, agent)
        store.gate = gate
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def look() -> None:
                    await list_children(app.host, continuations(app), agent.id, scope="children")

                group.start_soon(look)
                await gate.wait_reached()
                scope.cancel()
        assert scope.cancelled_caught
        assert store.reading == 0
        store.gate = None
