"""The faulty store refuses exactly what it was told to."""

import pytest

from retinue.errors import StoreFailure
from retinue.store.memory import MemoryStore
from retinue.testing.clock import FakeClock
from retinue.testing.faults import FaultyStore, appends
from retinue.testing.gate import Gate
from retinue.testing.host import scripted_host, start_agent
from retinue.testing.model import ScriptedModel


def faulty_store() -> FaultyStore:
    return FaultyStore(MemoryStore(FakeClock()))


async def test_one_batch_is_refused_and_the_next_one_is_not() -> None:
    faulty = faulty_store()
    async with scripted_host(ScriptedModel(), store=faulty) as host:
        agent = await start_agent(host)
        faulty.refuse(3, StoreFailure("full"))
        await agent.inject("second batch")
        with pytest.raises(StoreFailure, match="full"):
            await agent.inject("third batch")
        await agent.inject("fourth batch")
        assert len(faulty.batches) == 4
        assert not faulty.is_dead


async def test_a_refused_batch_in_a_group_is_refused_alone() -> None:
    faulty = faulty_store()
    async with scripted_host(ScriptedModel(), store=faulty) as host:
        agent = await start_agent(host)
        faulty.refuse(3)
        sent = [agent.inject(str(number)) for number in range(3)]
        await sent[0]
        with pytest.raises(StoreFailure):
            await sent[1]
        await sent[2]
        assert [row.id for row in agent.session.mailbox.next_step] == [await sent[0], await sent[2]]


async def test_a_dead_store_takes_nothing_any_more() -> None:
    faulty = faulty_store()
    async with scripted_host(ScriptedModel(), store=faulty, at_rest=False) as host:
        agent = await start_agent(host)
        faulty.die(2)
        assert not faulty.is_dead
        for words in "ab":
            with pytest.raises(StoreFailure, match="died"):
                await agent.inject(words)
        assert faulty.is_dead
        assert await host.sessions.store.read_rows(agent.id) == []


async def test_a_held_batch_waits_for_its_gate_and_later_ones_behind_it() -> None:
    faulty, gate = faulty_store(), Gate()
    async with scripted_host(ScriptedModel(), store=faulty) as host:
        agent = await start_agent(host)
        faulty.hold(2, gate)
        first = agent.inject("a")
        await gate.wait_reached()
        second = agent.inject("b")
        assert len(faulty.batches) == 1
        gate.open()
        await second
        await first
        assert len(faulty.batches) == 3


async def test_a_predicate_finds_batches_by_what_they_append() -> None:
    faulty = faulty_store()
    faulty.refuse(appends("turn/start"))
    async with scripted_host(ScriptedModel(), store=faulty) as host:
        agent = await start_agent(host)
        await agent.follow_up("a")
        await agent.wait_idle()
        assert isinstance(agent.failure, StoreFailure)
