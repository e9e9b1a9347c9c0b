"""Interrupts and stops from outside a tree, also when its process dies before they had their effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import anyio
import anyio.lowlevel
import pytest

from retinue.base.ids import SessionId
from retinue.compose.post import Posted, post_message, post_order
from retinue.errors import BadInput, IdConflict
from retinue.host.host import Host
from retinue.session.events import ActivationEnd, TurnEnd
from retinue.session.rows import StoredRow
from retinue.session.store import SessionRecord, SessionStore
from retinue.session.table import Sessions
from retinue.store.memory import MemoryHome, MemoryStore
from retinue.testing.clock import FakeClock
from retinue.testing.faults import FaultyStore
from retinue.testing.gate import Gate
from retinue.testing.host import all_sessions, resume_agent, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, optional, text
from tests.scenarios.small import check_tree, of, small_host
from tests.scenarios.stock import (
    CONTINUABLE,
    chain,
    continuations,
    endings,
    listener,
    live,
    log,
    notices,
    quiet,
    rows,
    settled,
    start,
    stock,
    ticks,
)
from tests.store.contract_arrivals import order

ROOT = SessionId("root")
Kind = Literal["interrupt", "stop"]


def ends(events: list[object]) -> list[tuple[str, str | None]]:
    return [(end.reason, end.cause) for end in events if isinstance(end, TurnEnd)]


def endings_of(record: SessionRecord) -> list[str]:
    return [event.data.outcome for event in record.events if isinstance(event.data, ActivationEnd)]


async def turn_ends(store: SessionStore, id: SessionId) -> list[tuple[str, str | None]]:
    return ends([event.data for event in (await store.read(id)).events])


def controls(stored: list[StoredRow]) -> list[tuple[str, str, str | None]]:
    return [(row.delivery.kind, row.state, row.reason) for row in stored if row.delivery.is_control]


# In the process that drives the tree.


async def test_an_order_to_an_agent_that_does_nothing_is_moot(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", text("one"), text("two"))
    async with stock(model, tmp_path) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        posted = await app.interrupt(agent.id)
        assert (posted.has_open_turn, posted.driver is not None) == (False, True)
        assert controls(await rows(app, agent.id)) == [("interrupt", "withdrawn", "moot")]
        await app.stop(agent.id)
        await agent.follow_up("again").wait()
        await agent.wait_idle()
        assert agent.last_text == "two"
        assert controls(await rows(app, agent.id))[1] == ("stop", "claimed", None)


async def test_an_interrupt_parks_the_queue_and_the_next_message_resumes_it(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("R", text("cut").hold_after(gate), text("two"), text("three"))
    async with stock(model, tmp_path) as app:
        agent = await app.agent(label="R")
        await app.send(agent.id, "one")
        await gate.wait_reached()
        await app.send(agent.id, "two")
        await app.interrupt(agent.id, key="k")
        await agent.wait_idle()
        assert agent.session.mailbox.parked == 1
        await app.interrupt(agent.id, key="k")
        await app.send(agent.id, "three")
        await agent.wait_idle()
        assert ends([event.data for event in await log(app, agent.id)]) == [
            ("aborted", "user"),
            ("completed", None),
            ("completed", None),
        ]
        assert controls(await rows(app, agent.id)) == [("interrupt", "claimed", None)]


async def test_a_message_that_is_sent_after_a_stop_is_read(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("R", text("cut").hold_after(gate), text("later"))
    async with stock(model, tmp_path) as app:
        agent = await app.agent(label="R")
        await app.send(agent.id, "one")
        await gate.wait_reached()
        await app.send(agent.id, "two")
        await app.stop(agent.id)
        await app.send(agent.id, "three")
        await quiet(app, agent)
        assert agent.last_text == "later"
        states = [(row.state, row.reason) for row in await rows(app, agent.id) if not row.delivery.is_control]
        assert states == [("claimed", None), ("withdrawn", "stopped"), ("claimed", None)]


async def test_a_stop_ends_those_below_and_wakes_nobody_who_is_stopped(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("R", text("unused").hold_after(Gate()), text("after the stop"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        a, b, c = await chain(app, agent, "ABC", model, gate)
        await app.send(c, "unread")
        await agent.follow_up("go").wait()
        await model.wait_requests(1, "R")
        await app.stop(agent.id)
        await quiet(app, agent)
        assert [await endings(app, id) for id in (a, b, c)] == [["aborted"]] * 3
        assert [len(await notices(app, id)) for id in (agent.id, a, b)] == [1, 1, 1]
        assert len(model.requests("R")) == 1
        unread = next(row for row in await rows(app, c) if "unread" in str(row.delivery.message.content))
        assert unread.reason == "stopped"
        await agent.follow_up("go on").wait()
        await quiet(app, agent)
        assert agent.last_text == "after the stop"
        assert "stopped" in str(model.requests("R")[-1].users)


async def test_nothing_starts_until_a_stop_is_over(tmp_path: Path) -> None:
    model, held, slow = ScriptedModel(), Gate(), Gate()
    model.script("R", text("after the stop"))
    model.script("C", text("never").hold_after(held))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        live(app, child).scope.push_async_callback(slow.wait)
        await held.wait_reached()
        await app.stop(agent.id)
        await slow.wait_reached()
        await app.send(agent.id, "and now")
        await ticks()
        assert (agent.status, model.requests("R")) == ("idle", ())
        assert controls(await rows(app, agent.id)) == [("stop", "pending", None)]
        slow.open()
        await quiet(app, agent)
        assert agent.last_text == "after the stop"
        assert controls(await rows(app, agent.id)) == [("stop", "withdrawn", "done")], "it had no turn yet to claim it"
        assert await endings(app, child) == ["aborted"]


async def test_a_stop_ends_what_works_in_the_background_too(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("R", calls(call("subagent", description="T", prompt="work", run_in_background=True)), text("waiting"))
    model.script("T", hold(gate, text("never")))
    async with stock(model, tmp_path, "plugins.subagent.background_mode=one-shot") as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await gate.wait_reached()
        await agent.wait_idle()
        await app.stop(agent.id)
        await quiet(app, agent)
        assert len(model.requests("R")) == 2, "a task that was stopped tells nobody"
        assert [agent.label for agent in app.host.agents.list()] == ["R"]


async def test_a_child_that_settled_comes_back_for_a_message_from_the_user(tmp_path: Path) -> None:
    model = ScriptedModel()
    listener(model)
    model.script("C", text("one"), text("two"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await settled(app, child)
        await app.send(child[:14], "more", key="k")
        await app.send(child, "more", key="k")
        with pytest.raises(IdConflict, match="another text"):
            await app.send(child, "other", key="k")
        while len(await endings(app, child)) < 2:
            await anyio.lowlevel.checkpoint()
        await quiet(app, agent)
        assert await endings(app, child) == ["completed", "completed"]


async def test_a_run_is_not_over_while_a_grandchild_works_whose_parent_is_at_rest(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    noted = [optional(text("noted"))] * 6
    model.script("R", calls(call("subagent", description="C", prompt="P")), *noted)
    model.script("C", calls(call("subagent", description="G", prompt="P")), *noted)
    model.script("G", text("one"), text("two").hold_after(gate))
    is_over: list[bool] = []
    async with stock(model, tmp_path, *CONTINUABLE) as app, anyio.create_task_group() as group:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await quiet(app, agent)
        child = (await app.host.sessions.store.children(agent.id))[0].header.id
        grandchild = (await app.host.sessions.store.children(child))[0].header.id
        await app.send(grandchild, "more")
        await gate.wait_reached()

        async def wait() -> None:
            await quiet(app, agent)
            is_over.append(True)

        group.start_soon(wait)
        await ticks()
        assert not is_over
        gate.open()
    assert is_over
    assert model.requests("R")[-1].number > 2, "the child was told, and told its parent"


async def test_a_stop_of_a_child_that_is_not_here_withdraws_what_was_parked_for_it(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", text("cut").hold_after(gate))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await gate.wait_reached()
        await continuations(app).send(agent, child, "queued")
        continuations(app).interrupt(child, agent)
        await settled(app, child)
        assert [row.parked for row in await rows(app, child) if row.state == "pending"] == [True]
        await app.stop(child)
        while any(row.state == "pending" for row in await rows(app, child)):
            await anyio.lowlevel.checkpoint()
        await quiet(app, agent)
        assert await endings(app, child) == ["aborted"]


async def test_who_cannot_be_sent_to_is_said(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("subagent", description="T", prompt="work")), text("done"))
    model.script("T", text("seen"))
    async with stock(model, tmp_path, "plugins.subagent.background_mode=one-shot") as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        (child,) = await app.host.sessions.store.children(agent.id)
        with pytest.raises(BadInput, match="was a single run and takes no messages"):
            await app.send(child.header.id, "more")
        for text_, key in ((" ", None), ("words", " ")):
            with pytest.raises(BadInput):
                await app.send(agent.id, text_, key=key)


async def test_what_has_ended_since_is_not_meant(tmp_path: Path) -> None:
    model, gates = ScriptedModel(), [Gate(), Gate()]
    listener(model)
    model.script("C", hold(gates[0], text("one")), hold(gates[1], text("two")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await gates[0].wait_reached()
        length = live(app, child).session.next_seq
        gates[0].open()
        await settled(app, child)
        await app.send(child, "more")
        await gates[1].wait_reached()
        for kind in ("interrupt", "stop"):
            late = order(child, f"late-{kind}", kind, log_length=length)
            await app.host.sessions.post(late).wait()
        gates[1].open()
        await quiet(app, agent)
        assert await endings(app, child) == ["completed", "completed"]
        assert controls(await rows(app, child)) == [("interrupt", "withdrawn", "moot"), ("stop", "withdrawn", "moot")]


# After the death of that process.


class Trees:
    """A root that has started C, which has started G; all of them wait for their models when the order comes."""

    def __init__(self) -> None:
        self.home = MemoryHome()
        self.clock = FakeClock()
        self.asked = 0

    def store(self) -> FaultyStore:
        return FaultyStore(MemoryStore(self.clock, self.home))

    def model(self, *, is_first: bool) -> ScriptedModel:
        made, never = ScriptedModel(), Gate()
        if is_first:
            made.script(ROOT, calls(call("subagent", description="C", prompt="do")), hold(never, text("never")))
            made.script("C", calls(call("subagent", description="G", prompt="below")), hold(never, text("never")))
            made.script("G", hold(never, text("never")))
        else:
            made.script(ROOT, *[text("ok")] * 3)
            made.script("C", *[text("C ok")] * 3)
            made.script("G", *[text("G ok")] * 3)
        return made

    async def ordered(self, kind: Kind, label: str, dies_after: int) -> int:
        """The process dies with so many commits after the order; how many it made."""
        store, model = self.store(), self.model(is_first=True)
        async with small_host(model, store, self.clock) as host:
            agent = await start_agent(host, id=ROOT)
            await agent.send("go").wait()
            for key, count in ((ROOT, 2), ("C", 2), ("G", 1)):
                await model.wait_requests(count, key)
            await host.sessions.writer.committed()
            before = len(store.batches)
            store.die(before + dies_after + 1)
            other = Sessions(MemoryStore(self.clock, self.home), self.clock)
            await post_order(other, kind, await self.named(label))
            await self.until(lambda: self.is_over(host, store))
            return len(store.batches) - before

    async def named(self, label: str) -> SessionId:
        if label == "R":
            return ROOT
        ids = [summary.header.id for summary in await all_sessions(self.store())]
        return ids["RCG".index(label)]

    async def is_over(self, host: Host, store: FaultyStore) -> bool:
        rows = await store.read_rows(await self.named("R"))
        rows += await store.read_rows(await self.named("C"))
        open_rows = [row for row in rows if row.delivery.is_control and row.state == "pending"]
        return store.is_dead or not open_rows

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        with anyio.fail_after(20):
            while not await condition():
                await anyio.lowlevel.checkpoint()
        for _ in range(100):
            await anyio.lowlevel.checkpoint()

    async def resumed(self, *, text: str | None = None) -> ScriptedModel:
        """The next process goes on with the tree, until it is quiet."""
        store, model = self.store(), self.model(is_first=False)
        async with small_host(model, store, self.clock) as host:
            agent = await resume_agent(host, ROOT)
            await of(host).recover(agent)
            if text is not None:
                await agent.send(text).wait()
            await of(host).wait_quiet(agent)
        return model


@pytest.mark.parametrize("label", ["R", "C"])
async def test_a_process_that_dies_at_any_commit_of_a_stop_is_followed_by_one_that_ends_it(label: str) -> None:
    count = await Trees().ordered("stop", label, 100)
    assert count > 2
    for k in range(count + 1):
        trees = Trees()
        await trees.ordered("stop", label, k)
        model = await trees.resumed()
        store = trees.store()
        records = {record.header.id: record for record in await check_tree(store, ROOT)}
        c, g = await trees.named("C"), await trees.named("G")
        assert (endings_of(records[c]), endings_of(records[g])) == (["aborted"], ["aborted"]), k
        assert controls(list(records[await trees.named(label)].rows)) == [("stop", "claimed", None)], k
        asked = [len(model.requests(key)) for key in (ROOT, "C", "G")]
        assert asked[1:] == [0, 0], k
        if label == "R":
            assert asked[0] == 0, k
            assert ends([event.data for event in records[ROOT].events]) == [("aborted", "user")], k


@pytest.mark.parametrize("label", ["R", "C", "G"])
async def test_an_interrupt_is_obeyed_by_the_next_process_before_it_asks_the_model(label: str) -> None:
    for k in (0, 1):
        trees = Trees()
        await trees.ordered("interrupt", label, k)
        id = await trees.named(label)
        await trees.resumed()
        store = trees.store()
        records = {record.header.id: record for record in await check_tree(store, ROOT)}
        first, *_ = ends([event.data for event in records[id].events])
        assert first == ("aborted", "user")
        assert controls(list(records[id].rows)) == [("interrupt", "claimed", None)]


async def test_a_message_after_an_interrupt_that_nobody_has_obeyed_yet_is_not_parked() -> None:
    trees = Trees()
    await trees.ordered("interrupt", "R", 0)
    sent: Posted = await post_message(Sessions(trees.store(), trees.clock), ROOT, "and now")
    assert sent.driver is None or sent.is_pending
    await trees.resumed()
    store = trees.store()
    row = next(row for row in await store.read_rows(ROOT) if row.delivery.id == sent.message_id)
    assert row.state == "claimed"
    assert (await turn_ends(store, ROOT))[0] == ("aborted", "user")


async def test_a_refused_effect_leaves_the_order_to_the_next_load() -> None:
    """The batch that ends the turn is refused: the session is dropped, and the next load obeys."""
    trees = Trees()
    store, model = trees.store(), trees.model(is_first=True)
    async with small_host(model, store, trees.clock) as host:
        agent = await start_agent(host, id=ROOT)
        await agent.send("go").wait()
        await model.wait_requests(2, ROOT)
        await model.wait_requests(1, "G")
        await host.sessions.writer.committed()
        store.refuse(lambda batch: any(type(op).__name__ == "Claim" for op in batch.ops))
        await post_order(Sessions(MemoryStore(trees.clock, trees.home), trees.clock), "interrupt", ROOT)

        async def failed() -> bool:
            return agent.failure is not None

        await trees.until(failed)
        assert controls(await store.read_rows(ROOT)) == [("interrupt", "pending", None)]
    await trees.resumed()
    assert (await turn_ends(trees.store(), ROOT))[0] == ("aborted", "user")
