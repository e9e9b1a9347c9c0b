"""Disposing agents and resuming their sessions: what ends, in which order, and who may begin. Source: behaviour AG."""

import anyio
import pytest

from retinue.agent.agent import Agent
from retinue.agent.environment import AgentOptions
from retinue.agent.signals import AgentDisposed, MessageInserted
from retinue.base.ids import MessageId, SessionId
from retinue.errors import AgentClosing, SessionNotFound
from retinue.model.content import Text, UserMessage
from retinue.session.rows import Delivery
from retinue.session.session import Session
from retinue.session.store import SessionStore
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.host import MODEL, resume_agent, scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import hold, text
from tests.support.agents import record
from tests.support.logs import outline
from tests.support.stores import OpenStore
from tests.support.tools import echo


async def test_disposal_aborts_unwinds_and_leaves_the_registry(store: SessionStore) -> None:
    steps: list[str] = []
    model = ScriptedModel(hold(Gate(), text("never")))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.scope.callback(lambda: steps.append(f"scope, {agent.status}, live={host.agents.is_live(agent)}"))
        host.bus.on(AgentDisposed, lambda _: steps.append("disposed"))
        agent.follow_up("go")
        await model.wait_requests(1)
        await host.agents.dispose(agent)
        assert steps == ["scope, idle, live=True", "disposed"]
        assert outline(agent.session.events)[-1] == "end 1 aborted disposed"
        assert host.agents.get(agent.id) is None
        assert host.sessions.live(agent.id) is None
        with pytest.raises(AgentClosing):
            agent.follow_up("late")
        with pytest.raises(AgentClosing):
            agent.tools.add(echo)


async def test_disposal_is_done_once_and_later_calls_wait_for_it(store: SessionStore) -> None:
    gate, count, ended = Gate(), 0, 0

    async def closing() -> None:
        nonlocal count
        count += 1
        await gate.wait()

    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        agent.scope.push_async_callback(closing)

        async def dispose() -> None:
            nonlocal ended
            await host.agents.dispose(agent)
            ended += 1

        async with anyio.create_task_group() as group:
            group.start_soon(dispose)
            group.start_soon(dispose)
            await gate.wait_reached()
            assert (count, ended) == (1, 0)
            gate.open()
        await host.agents.dispose(agent)
    assert (count, ended) == (1, 2)


async def test_whoever_asks_for_a_disposal_gets_what_it_failed_with(store: SessionStore) -> None:
    gate = Gate()
    failures: list[Exception] = []

    async def closing() -> None:
        await gate.wait()
        raise ValueError("scope")

    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        agent.scope.push_async_callback(closing)

        async def dispose() -> None:
            try:
                await host.agents.dispose(agent)
            except ValueError as error:
                failures.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(dispose)
            group.start_soon(dispose)
            await gate.wait_reached()
            gate.open()
        await dispose()
        assert len(failures) == 3
        assert len(set(failures)) == 1


async def test_a_resume_waits_for_a_disposal_that_fails_and_does_not_fail_with_it(store: SessionStore) -> None:
    gate = Gate()

    async def closing() -> None:
        await gate.wait()
        raise ValueError("scope")

    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        agent.scope.push_async_callback(closing)

        async def dispose() -> None:
            with pytest.raises(ValueError, match="scope"):
                await host.agents.dispose(agent)

        async def resume() -> None:
            assert await resume_agent(host, agent.id) is not agent

        async with anyio.create_task_group() as group:
            group.start_soon(dispose)
            await gate.wait_reached()
            group.start_soon(resume)
            await anyio.wait_all_tasks_blocked()
            gate.open()


async def test_a_failing_teardown_still_leaves_the_registry(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        agent.scope.callback(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await host.agents.dispose(agent)
        assert host.agents.list() == ()
        assert await resume_agent(host, agent.id)


async def test_a_failing_listener_starves_nobody(store: SessionStore) -> None:
    heard: list[str] = []
    async with scripted_host(ScriptedModel(text("ok")), store=store, errors_logged=True) as host:
        agent = await start_agent(host)

        def broken(_: MessageInserted) -> None:
            raise ValueError("listener")

        agent.bus.on(MessageInserted, broken)
        agent.bus.on(MessageInserted, lambda _: heard.append("second"))
        host.bus.on(MessageInserted, lambda _: heard.append("host"))
        agent.follow_up("go")
        await agent.wait_idle()
    assert heard == ["second", "host"]


async def test_a_scoped_listener_hears_of_its_own_agent_alone(store: SessionStore) -> None:
    heard: list[str] = []
    model = ScriptedModel()
    model.script("A", text("a"))
    model.script("B", text("b"))
    async with scripted_host(model, store=store) as host:
        a, b = await start_agent(host, "A"), await start_agent(host, "B")
        a.bus.on(MessageInserted, lambda e: heard.append(e.agent.label))
        b.follow_up("to b")
        a.follow_up("to a")
    assert heard == ["A"]


async def test_a_resumed_agent_has_the_same_session_and_a_fresh_runtime(
    open_store: OpenStore, clock: FakeClock
) -> None:
    async with scripted_host(ScriptedModel(text("1")), store=open_store(clock)) as host:
        agent = await start_agent(host, options=AgentOptions(max_tokens=7))
        header = agent.session.header
        await agent.follow_up("a")
        await agent.wait_idle()
    model = ScriptedModel(text("2"))
    async with scripted_host(model, store=open_store(clock)) as host:
        heard = record(host)
        agent = await host.agents.resume(header.id)
        assert heard == ["created live=True", "started resume"]
        assert (agent.session.header, agent.options.model, agent.options.max_tokens) == (header, MODEL, 7)
        assert await host.agents.resume(header.id) is agent
        await agent.follow_up("b")
        await agent.wait_idle()
        assert outline(agent.session.events, headers=True)[-7:] == [
            "turn 2",
            "step 1",
            "user: b",
            "request/header resume",
            "model: 2",
            "step 1 end",
            "end 2 completed",
        ]
        assert model.requests()[0].text.split("\n") == ["a", "1", "b"]


async def test_resuming_an_unknown_session_fails_and_leaves_nothing(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        with pytest.raises(SessionNotFound):
            await host.agents.resume(SessionId("session-none"))
        assert host.agents.list() == ()


async def test_an_agent_resumed_under_the_same_id_is_another_one(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        first = await start_agent(host)
        await host.agents.dispose(first)
        second = await resume_agent(host, first.id)
        assert second is not first
        assert host.agents.is_live(second)
        assert not host.agents.is_live(first)


async def test_resuming_while_the_old_agent_goes_waits_and_gives_a_new_one(store: SessionStore) -> None:
    gate = Gate()
    async with scripted_host(ScriptedModel(), store=store) as host:
        first = await start_agent(host)
        first.scope.push_async_callback(gate.wait)
        resumed: list[Agent] = []

        async def resume() -> None:
            resumed.append(await resume_agent(host, first.id))

        async with anyio.create_task_group() as group:
            group.start_soon(host.agents.dispose, first)
            await gate.wait_reached()
            group.start_soon(resume)
            await anyio.lowlevel.checkpoint()
            gate.open()
        assert resumed[0] is not first
        assert host.agents.is_live(resumed[0])


async def test_a_session_is_free_for_a_new_agent_only_after_the_last_word_about_the_old_one(
    store: SessionStore,
) -> None:
    gate = Gate()
    async with scripted_host(ScriptedModel(text("ok")), store=store) as host:
        first = await start_agent(host)
        resumed: list[Agent] = []

        async def last(_session: Session, _failure: Exception | None) -> None:
            await gate.wait()

        async def dispose() -> None:
            await host.agents.dispose(first, last=last)

        async def resume() -> None:
            resumed.append(await resume_agent(host, first.id))

        async with anyio.create_task_group() as group:
            group.start_soon(dispose)
            await gate.wait_reached()
            group.start_soon(resume)
            await anyio.wait_all_tasks_blocked()
            assert resumed == []
            gate.open()
        resumed[0].follow_up("go")
        await resumed[0].wait_idle()
        assert resumed[0].last_text == "ok"


async def test_a_failing_hook_before_disposal_stops_nothing(store: SessionStore) -> None:
    async def broken(_: Agent) -> None:
        raise ValueError("hook")

    model = ScriptedModel(hold(Gate(), text("never")))
    async with scripted_host(model, store=store) as host:
        host.agents.before_disposal(broken)
        agent = await start_agent(host)
        agent.follow_up("go")
        await model.wait_requests(1)
        with pytest.raises(ValueError, match="hook"):
            await host.agents.dispose(agent)
        assert outline(agent.session.events)[-1] == "end 1 aborted disposed"


async def test_a_session_with_pending_work_runs_as_soon_as_it_is_resumed(
    open_store: OpenStore, clock: FakeClock
) -> None:
    model = ScriptedModel(hold(Gate(), text("never")))
    async with scripted_host(model, store=open_store(clock)) as host:
        agent = await start_agent(host)
        await host.agents.dispose(agent)
        tx = host.sessions.transaction()
        message = UserMessage(MessageId("msg-while-away"), (Text("while away"),))
        tx.insert(Delivery(session_id=agent.id, message=message, target="next-turn", wake=True, accepted_at=0))
        await tx.submit().wait()
        resumed = await resume_agent(host, agent.id)
        assert resumed.status == "running"
        await model.wait_requests(1)
        resumed.cancel()
