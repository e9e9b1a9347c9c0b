"""The host: what it owns begins and ends with it."""

import asyncio
import gc

import anyio
import pytest

from retinue.agent.environment import PreStep, StepInput
from retinue.agent.phase import Cause
from retinue.base.chain import Next
from retinue.errors import ConfigError, DuplicateName, MissingSeam
from retinue.host.host import HostOptions, Seam, open_host
from retinue.session.events import TurnEnd
from retinue.session.store import SessionStore
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.host import scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, text
from tests.support.tools import gated

PORT = Seam[int]("port")


async def test_a_seam_is_provided_once_and_a_missing_one_names_who_needs_it(
    store: SessionStore, clock: FakeClock
) -> None:
    async with open_host(store, clock, HostOptions()) as host:
        with pytest.raises(MissingSeam, match="'web' needs 'port'"):
            host.require(PORT, needed_by="web")
        assert host.find(PORT) is None
        with host.provide(PORT, 80):
            assert host.require(PORT, needed_by="web") == 80
            with pytest.raises(DuplicateName, match="port"):
                host.provide(PORT, 81)
        assert host.find(PORT) is None


async def test_model_providers_are_known_by_name(store: SessionStore, clock: FakeClock) -> None:
    async with open_host(store, clock, HostOptions()) as host:
        model = ScriptedModel(provider="one")
        with host.add_client(model):
            assert host.client("one") is model
            with pytest.raises(DuplicateName):
                host.add_client(ScriptedModel(provider="one"))
            with pytest.raises(ConfigError, match="configured: one"):
                host.client("two")


async def test_what_the_caller_raises_leaves_the_host_as_it_is(store: SessionStore, clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="mine"):
        async with open_host(store, clock, HostOptions()):
            raise ValueError("mine")


async def test_no_task_outlives_the_host(store: SessionStore) -> None:
    before = asyncio.all_tasks()
    gate = Gate()
    model = ScriptedModel()
    model.script("A", hold(Gate(), text("never")))
    model.script("B", calls(call("slow"), call("slow")))
    model.script("C", text("done"))
    async with scripted_host(model, store=store, tools=[gated("slow", gate)], at_rest=False) as host:
        agents = [await start_agent(host, label) for label in "ABC"]
        for agent in agents:
            agent.follow_up("go")
        await gate.wait_reached(2)
        await model.wait_requests(1, "A")
        await agents[2].wait_idle()
    gc.collect()
    assert asyncio.all_tasks() == before


async def test_a_waiter_for_idle_is_released_when_the_host_goes(store: SessionStore) -> None:
    gate, released = Gate(), Gate()
    async with anyio.create_task_group() as group:
        async with scripted_host(ScriptedModel(hold(gate, text("x"))), store=store, at_rest=False) as host:
            agent = await start_agent(host)
            agent.follow_up("go")

            async def wait() -> None:
                await agent.wait_idle()
                released.open()

            group.start_soon(wait)
            await gate.wait_reached()
        with anyio.fail_after(20):
            await released.wait()


async def test_an_agent_cannot_be_woken_after_its_host_has_gone(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
    with pytest.raises(Exception, match="clos"):
        agent.follow_up("late")
    assert agent.status == "idle"


async def test_a_host_that_goes_closes_what_belongs_to_its_agents(store: SessionStore) -> None:
    closed: list[str] = []
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        agent.scope.callback(closed.append, "resource")
        await host.suspend()
        assert closed == ["resource"]


async def test_a_session_that_made_no_request_resumes_with_the_models_of_the_host(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(text("hello")), store=store) as host:
        agent = await start_agent(host)
        await host.agents.dispose(agent)
        again = await host.agents.resume(agent.id)
        await again.follow_up("hi").wait()
        await again.wait_idle()
        assert again.last_text == "hello"


async def test_a_layer_that_fails_while_the_turn_is_being_aborted_leaves_it_aborted(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store, errors_logged=True) as host:
        agent = await start_agent(host)

        async def failing(step: StepInput, inner: Next[StepInput, PreStep]) -> PreStep:
            agent.cancel(Cause("user"), keep_mailbox=True)
            raise RuntimeError("the layer broke")

        agent.chains.pre_step.wrap(failing)
        await agent.follow_up("hi").wait()
        await agent.wait_idle()
        ends = [event.data for event in agent.session.events if isinstance(event.data, TurnEnd)]
        assert [end.reason for end in ends] == ["aborted"]
