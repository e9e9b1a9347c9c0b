"""The mailbox as an agent offers it: three sends, ids, order, what a turn or a step takes."""

from typing import Literal

import pytest

from retinue.agent.signals import MessageClaimed, MessageDiscarded, MessageInserted
from retinue.base.ids import MessageId
from retinue.errors import IdConflict
from retinue.model.content import Source, UserMessage, text_of
from retinue.session.store import SessionStore
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.host import resume_agent, scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, text
from tests.support.logs import outline
from tests.support.stores import OpenStore
from tests.support.tools import gated

SETTLED = Source(kind="subagent-settled", form="notice")


async def test_two_follow_ups_are_two_turns_in_order(store: SessionStore) -> None:
    model = ScriptedModel(text("1"), text("2"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        agent.follow_up("b")
        await agent.wait_idle()
        assert [request.new for request in model.requests()] == [("a",), ("b",)]
        assert outline(agent.session.events).count("end 2 completed") == 1


async def test_a_turn_takes_all_next_step_messages_first_and_then_one_of_its_own(store: SessionStore) -> None:
    gate = Gate()
    model = ScriptedModel(hold(gate, text("1")), text("2"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)

        async def fill() -> None:
            agent.send("turn b", wake=False)
            agent.send("turn c", wake=False)
            agent.inject("step d")
            agent.inject("step e")

        await agent.run_maintenance(fill)
        assert model.requests() == ()
        agent.steer("step f")
        await model.wait_requests(1)
        gate.open()
        await agent.wait_idle()
        assert [r.new for r in model.requests()] == [("step d", "step e", "step f", "turn b"), ("turn c",)]


async def test_between_steps_only_next_step_messages_are_taken_all_of_them(store: SessionStore) -> None:
    gate = Gate()
    model = ScriptedModel(calls(call("slow")), text("1"), text("2"))
    async with scripted_host(model, store=store, tools=[gated("slow", gate)]) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await gate.wait_reached()
        agent.follow_up("b")
        agent.inject("c")
        agent.steer("d")
        gate.open()
        await agent.wait_idle()
        assert [r.new for r in model.requests()] == [("a",), ("slow", "c", "d"), ("b",)]


async def test_a_message_that_arrives_while_the_request_streams_waits_for_the_next_step(store: SessionStore) -> None:
    gate = Gate()
    model = ScriptedModel(hold(gate, text("1")), text("2"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await gate.wait_reached()
        agent.inject("b")
        gate.open()
        await agent.wait_idle()
        assert outline(agent.session.events)[4:8] == ["step 1 end", "step 2", "user: b", "model: 2"]


async def test_consecutive_notices_at_the_head_count_as_one_item(store: SessionStore) -> None:
    model = ScriptedModel(text("1"), text("2"), text("3"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)

        async def fill() -> None:
            for words in ("n1", "n2"):
                agent.follow_up(words, source=SETTLED)
            agent.follow_up("user")
            agent.follow_up("n3", source=SETTLED)

        await agent.run_maintenance(fill)
        await agent.wait_idle()
        assert [r.new for r in model.requests()] == [("n1", "n2"), ("user",), ("n3",)]


async def test_inject_never_wakes_and_survives_a_reload(open_store: OpenStore, clock: FakeClock) -> None:
    async with scripted_host(ScriptedModel(), store=open_store(clock)) as host:
        agent = await start_agent(host)
        await agent.inject("later")
        assert agent.status == "idle"
        id = agent.id
    model = ScriptedModel(text("ok"))
    async with scripted_host(model, store=open_store(clock)) as host:
        agent = await resume_agent(host, id)
        assert agent.status == "idle"
        assert [text_of(row.delivery.message.content) for row in agent.session.mailbox.next_step] == ["later"]
        agent.follow_up("now")
        await agent.wait_idle()
        assert model.requests()[0].new == ("later", "now")


async def test_the_id_is_the_same_from_the_send_to_the_log(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(text("1")), store=store) as host:
        agent = await start_agent(host)
        id = await agent.send("a", id=MessageId("mine"))
        await agent.wait_idle()
        assert id == "mine"
        assert [e.data.id for e in agent.session.events if isinstance(e.data, UserMessage)] == ["mine"]


async def test_the_same_id_with_the_same_content_changes_nothing(store: SessionStore) -> None:
    model = ScriptedModel(text("1"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        first = agent.send("a", id=MessageId("mine"))
        second = agent.send("a", id=MessageId("mine"))
        assert await first == await second == "mine"
        await agent.wait_idle()
        assert len(model.requests()) == 1


async def test_the_same_id_after_its_turn_opens_no_turn_with_it(store: SessionStore) -> None:
    model = ScriptedModel(text("1"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        await agent.send("a", id=MessageId("mine"))
        await agent.wait_idle()
        assert await agent.send("a", id=MessageId("mine")) == "mine"
        await agent.wait_idle()
        assert len(model.requests()) == 1
        assert agent.failure is None


@pytest.mark.parametrize("target", ["next-step", "next-turn"])
async def test_the_same_id_at_a_boundary_is_not_taken_twice(
    store: SessionStore, target: Literal["next-step", "next-turn"]
) -> None:
    model = ScriptedModel(text("1"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.session.observe(lambda _, events: again() if events[0].type == "assistant/message" else None)

        def again() -> None:
            agent.send("a", id=MessageId("mine"), target=target)

        await agent.send("a", id=MessageId("mine"), target=target)
        assert agent.failure is None
        assert [line for line in outline(agent.session.events) if line.startswith("user")] == ["user: a"]


async def test_a_withdrawn_message_that_is_sent_again_stays_withdrawn(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        agent.send("a", id=MessageId("mine"), wake=False)
        assert agent.withdraw(MessageId("mine"))
        assert await agent.send("a", id=MessageId("mine"), wake=False) == "mine"
        assert len(agent.session.mailbox) == 0


async def test_the_same_id_with_other_content_is_a_conflict(store: SessionStore) -> None:
    model = ScriptedModel(text("1"), text("2"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        await agent.send("a", id=MessageId("mine"))
        await agent.wait_idle()
        clash = agent.send("b", id=MessageId("mine"))
        with pytest.raises(IdConflict):
            await clash
        await agent.wait_idle()
        await agent.follow_up("c")
        await agent.wait_idle()
        assert [r.new for r in model.requests()] == [("a",), ("c",)]


async def test_a_conflict_leaves_the_first_message_pending(store: SessionStore) -> None:
    model = ScriptedModel(text("1"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        await agent.send("a", id=MessageId("mine"), wake=False)
        with pytest.raises(IdConflict):
            await agent.send("b", id=MessageId("mine"), wake=False)
        agent.steer("go")
        await agent.wait_idle()
        assert model.requests()[0].new == ("go", "a")


async def test_a_prepended_message_goes_first(store: SessionStore) -> None:
    model = ScriptedModel(text("1"), text("2"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)

        async def fill() -> None:
            agent.follow_up("a")
            await agent.send("b", prepend=True)

        await agent.run_maintenance(fill)
        await agent.wait_idle()
        assert [r.new for r in model.requests()] == [("b",), ("a",)]


async def test_a_withdrawn_message_is_never_read_and_its_row_says_why(store: SessionStore) -> None:
    discarded: list[tuple[str, str]] = []
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        agent.bus.on(MessageDiscarded, lambda event: discarded.append((event.row.id, event.reason)))
        id = await agent.inject("a")
        assert agent.withdraw(id, "changed my mind")
        assert not agent.withdraw(id)
        await host.sessions.writer.committed()
        rows = await host.sessions.store.read_rows(agent.id)
        assert [(row.state, row.reason) for row in rows] == [("withdrawn", "changed my mind")]
        assert discarded == [(id, "changed my mind")]


async def test_a_replacement_takes_the_place_of_the_message(store: SessionStore) -> None:
    model = ScriptedModel(text("1"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        id = await agent.inject("a")
        await agent.inject("b")
        sent = agent.replace(id, "A")
        assert sent is not None
        assert await sent != id
        assert agent.replace(id, "again") is None
        agent.steer("go")
        await agent.wait_idle()
        assert model.requests()[0].new == ("A", "b", "go")


async def test_insertion_discarding_and_claim_are_published(store: SessionStore) -> None:
    heard: list[str] = []
    async with scripted_host(ScriptedModel(text("1")), store=store) as host:
        agent = await start_agent(host)
        host.bus.on(MessageInserted, lambda e: heard.append(f"inserted {text_of(e.delivery.message.content)}"))
        host.bus.on(MessageDiscarded, lambda e: heard.append(f"discarded {text_of(e.row.delivery.message.content)}"))
        host.bus.on(MessageClaimed, lambda e: heard.append(f"claimed {text_of(e.delivery.message.content)} {e.turn}"))
        id = await agent.inject("a")
        agent.withdraw(id)
        agent.follow_up("b")
        await agent.wait_idle()
    assert heard == ["inserted a", "discarded a", "inserted b", "claimed b 1"]


async def test_a_message_is_claimed_in_the_batch_that_enters_it(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(text("1")), store=store) as host:
        agent = await start_agent(host)
        await agent.follow_up("a")
        await agent.wait_idle()
        (row,) = await host.sessions.store.read_rows(agent.id)
        assert (row.state, row.turn) == ("claimed", 1)
