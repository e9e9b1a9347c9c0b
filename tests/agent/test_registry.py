"""Creating, resuming and disposing agents: published whole or not at all. Source: behaviour AG."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from retinue.agent.agent import Agent
from retinue.agent.registry import Creation
from retinue.agent.signals import AgentCreated, SessionStarted
from retinue.base.ids import MessageId, new_session_id
from retinue.errors import AgentBusy, AlreadyExists, StoreFailure
from retinue.model.content import Text, UserMessage
from retinue.session.events import SessionHeader
from retinue.session.rows import Delivery
from retinue.session.store import SessionStore
from retinue.session.transaction import Transaction
from retinue.testing.faults import FaultyStore
from retinue.testing.gate import Gate
from retinue.testing.host import scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import text
from tests.support.agents import record
from tests.support.tools import echo


async def test_creation_publishes_in_order_and_the_session_is_durable(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        heard = record(host)
        agent = await start_agent(host)
        assert heard == ["created live=True", "started startup"]
        assert agent.id == agent.session.id
        assert host.agents.get(agent.id) is agent
        assert host.agents.list() == host.agents.roots() == (agent,)
        assert await host.sessions.store.summary(agent.id) is not None


async def test_a_failing_setup_leaves_nothing_behind(store: SessionStore) -> None:
    undone: list[str] = []

    @asynccontextmanager
    async def context(name: str) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            undone.append(name)

    async def first(agent: Agent) -> None:
        await agent.scope.enter_async_context(context("first"))

    async def second(agent: Agent) -> None:
        await agent.scope.enter_async_context(context("second"))
        agent.tools.add(echo)
        raise ValueError("cannot")

    async with scripted_host(ScriptedModel(), store=store) as host:
        heard = record(host)
        host.agents.on_setup(first)
        id = new_session_id()
        with pytest.raises(ValueError, match="cannot"):
            await start_agent(host, id=id, setup=second)
        assert host.agents.get(id) is None
        assert await host.sessions.store.summary(id) is None
        assert heard == []
        assert undone == ["second", "first"]
        assert await start_agent(host, id=id), "the id is free again"


async def test_a_listener_may_veto_an_agent(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        heard = record(host)
        id = new_session_id()

        def veto(_: AgentCreated) -> None:
            raise PermissionError("no")

        undo = host.bus.on(AgentCreated, veto)
        with pytest.raises(PermissionError):
            await start_agent(host, id=id)
        undo()
        assert heard == ["created live=True", "disposed live=False"]
        assert host.agents.list() == ()
        assert await host.sessions.store.summary(id) is None


async def test_a_roll_back_goes_on_where_a_part_of_it_fails(store: SessionStore) -> None:
    async def setup(agent: Agent) -> None:
        agent.scope.callback(lambda: 1 / 0)

    async with scripted_host(ScriptedModel(), store=store) as host:
        id = new_session_id()

        def veto(_: AgentCreated) -> None:
            raise PermissionError("no")

        undo = host.bus.on(AgentCreated, veto)
        with pytest.raises((PermissionError, ZeroDivisionError)):
            await start_agent(host, id=id, setup=setup)
        undo()
        assert host.agents.list() == ()
        assert await start_agent(host, id=id)


async def test_a_refused_creation_leaves_no_agent(store: SessionStore) -> None:
    faulty = FaultyStore(store)
    faulty.refuse(1)
    async with scripted_host(ScriptedModel(), store=faulty) as host:
        heard = record(host)
        id = new_session_id()
        with pytest.raises(StoreFailure):
            await start_agent(host, id=id)
        assert host.agents.list() == ()
        assert heard[-1] == "disposed live=False"
        assert await start_agent(host, id=id)


async def test_two_agents_cannot_hold_one_id(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        with pytest.raises(AlreadyExists):
            await start_agent(host, id=agent.id)
        assert host.agents.get(agent.id) is agent
        await host.agents.dispose(agent)
        with pytest.raises(AlreadyExists, match="resume it"):
            await start_agent(host, id=agent.id)


async def test_an_id_in_its_setup_window_is_taken(store: SessionStore) -> None:
    gate = Gate()
    id = new_session_id()

    async def setup(_: Agent) -> None:
        await gate.wait()

    async with scripted_host(ScriptedModel(), store=store) as host, anyio.create_task_group() as group:

        async def first() -> None:
            await start_agent(host, id=id, setup=setup)

        group.start_soon(first)
        await gate.wait_reached()
        assert host.agents.get(id) is None, "unpublished"
        with pytest.raises(AlreadyExists):
            await start_agent(host, id=id)
        gate.open()


async def test_what_the_commit_adds_is_part_of_the_creating_batch(store: SessionStore) -> None:
    faulty = FaultyStore(store)
    model = ScriptedModel(text("ok"))
    async with scripted_host(model, store=faulty) as host:
        header = SessionHeader(id=new_session_id(), created_at=0)

        def commit(tx: Transaction, agent: Agent) -> None:
            message = UserMessage(MessageId("msg-first"), (Text("the task"),))
            tx.insert(Delivery(session_id=agent.id, message=message, target="next-turn", wake=True, accepted_at=0))

        agent = await host.agents.create(Creation(header=header, options=host.options.options, commit=commit))
        assert agent.status == "running"
        assert len(faulty.batches[0].ops) >= 2
        await agent.wait_idle()
        assert model.requests()[0].new == ("the task",)


async def test_an_unpublished_agent_takes_no_messages(store: SessionStore) -> None:
    refusals: list[Exception] = []

    async def setup(agent: Agent) -> None:
        try:
            agent.inject("too early")
        except AgentBusy as error:
            refusals.append(error)

    async with scripted_host(ScriptedModel(), store=store) as host:
        await start_agent(host, setup=setup)
    assert len(refusals) == 1


async def test_a_message_from_a_start_listener_is_read(store: SessionStore) -> None:
    model = ScriptedModel(text("ok"))
    async with scripted_host(model, store=store) as host:

        def welcome(event: SessionStarted) -> None:
            event.agent.follow_up("welcome")

        host.bus.on(SessionStarted, welcome)
        agent = await start_agent(host)
        await agent.wait_idle()
        assert model.requests()[0].new == ("welcome",)


async def test_cancelling_the_creation_after_its_batch_was_submitted_changes_nothing(store: SessionStore) -> None:
    faulty, gate = FaultyStore(store), Gate()
    faulty.hold(1, gate)
    id = new_session_id()
    async with scripted_host(ScriptedModel(text("ok")), store=faulty) as host:
        made: list[Agent] = []

        async def create() -> None:
            made.append(await start_agent(host, id=id))

        async with anyio.create_task_group() as group:
            group.start_soon(create)
            await gate.wait_reached()
            group.cancel_scope.cancel()
            gate.open()
        assert made == [host.agents.get(id)]
        made[0].follow_up("go")
        await made[0].wait_idle()
