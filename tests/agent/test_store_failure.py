"""When the store refuses: nothing is consumed, the agent stops and says why, and the session loads again."""

import pytest

from retinue.agent.signals import AgentFailed
from retinue.errors import LeaseLost, StoreFailure
from retinue.session.store import SessionStore
from retinue.testing.clock import FakeClock
from retinue.testing.faults import FaultyStore, appends
from retinue.testing.gate import Gate
from retinue.testing.host import resume_agent, scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, hold, text
from tests.support.logs import outline
from tests.support.stores import OpenStore
from tests.support.tools import echo, gated


async def test_a_refused_entry_consumes_nothing_and_the_session_loads_again(store: SessionStore) -> None:
    faulty = FaultyStore(store)
    faulty.refuse(appends("step/start"))
    failures: list[AgentFailed] = []
    model = ScriptedModel(text("ok"))
    async with scripted_host(model, store=faulty) as host:
        host.bus.on(AgentFailed, failures.append)
        agent = await start_agent(host)
        await agent.follow_up("a")
        await agent.wait_idle()
        assert model.requests() == ()
        assert isinstance(agent.failure, StoreFailure)
        assert len(failures) == 1
        with pytest.raises(StoreFailure):
            agent.follow_up("b")
        assert [row.state for row in await host.sessions.store.read_rows(agent.id)] == ["pending"]

        again = await resume_agent(host, agent.id)
        assert again is not agent
        await again.wait_idle()
        assert model.requests()[0].new == ("a",)


def _acts_alike(seen: SeenRequest) -> Reply:
    return calls(call("echo", words="x")) if seen.new == ("a",) else text("ok")


@pytest.mark.parametrize(
    "at", ["step/start", "request/header", "assistant/message", "tool/start", "tool/result", "step/end", "turn/end"]
)
async def test_a_batch_refused_anywhere_leaves_a_log_that_goes_on(store: SessionStore, at: str) -> None:
    faulty = FaultyStore(store)
    faulty.refuse(appends(at))
    model = ScriptedModel(*[_acts_alike] * 4)
    async with scripted_host(model, store=faulty, tools=[echo], at_rest=False) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await agent.wait_idle()
        await host.sessions.writer.committed()
        assert isinstance(agent.failure, StoreFailure)
        again = await resume_agent(host, agent.id)
        await again.wait_idle()
        lines = outline(again.session.events)
        assert lines[-1] == "end 1 completed"
        assert lines.count("user: a") == 1


async def test_a_running_body_is_stopped_when_its_session_is_dropped(store: SessionStore) -> None:
    faulty, gate = FaultyStore(store), Gate()
    faulty.refuse(appends("tool/result"))
    model = ScriptedModel(calls(call("echo", words="x"), call("slow")))
    async with scripted_host(model, store=faulty, tools=[echo, gated("slow", gate)], at_rest=False) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await agent.wait_idle()
        assert isinstance(agent.failure, StoreFailure)
        stored = await host.sessions.store.read(agent.id)
        assert not any(event.type in ("tool/result", "step/end") for event in stored.events)


async def test_waiting_senders_get_the_error(store: SessionStore) -> None:
    faulty, gate = FaultyStore(store), Gate()
    async with scripted_host(ScriptedModel(), store=faulty) as host:
        agent = await start_agent(host)
        faulty.refuse(2)
        sent = agent.inject("a")
        with pytest.raises(StoreFailure):
            await sent
        assert len(agent.session.mailbox) == 0
        assert agent.failure is None, "a send changes no log; its refusal is the sender's alone"
        gate.open()


async def test_a_neighbour_in_the_same_commit_is_unharmed(store: SessionStore) -> None:
    faulty = FaultyStore(store)
    model = ScriptedModel()
    model.script("B", text("b"))
    async with scripted_host(model, store=faulty) as host:
        a, b = await start_agent(host, "A"), await start_agent(host, "B")
        faulty.refuse(
            lambda batch: any(
                getattr(op, "session_id", None) == a.id and op.__class__.__name__ == "Claim" for op in batch.ops
            )
        )
        a.follow_up("a")
        b.follow_up("b")
        await a.wait_idle()
        await b.wait_idle()
        assert a.failure is not None
        assert b.last_text == "b"


async def test_a_lost_lease_stops_the_agent_before_its_next_request(open_store: OpenStore, clock: FakeClock) -> None:
    gate = Gate()
    model = ScriptedModel(hold(gate, calls(call("echo", words="x"))))
    mine = open_store(clock)
    async with scripted_host(model, store=mine, clock=clock, tools=[echo], at_rest=False) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await gate.wait_reached()
        (hold_,) = [session.hold for session in host.sessions]
        await mine.release(hold_.lease)
        gate.open()
        await agent.wait_idle()
        assert isinstance(agent.failure, LeaseLost)
        assert len(model.requests()) == 1
