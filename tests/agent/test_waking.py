"""When a message starts an agent, and when it is only remembered."""

import anyio

from retinue.agent.environment import PreStep, Reject, StepInput
from retinue.agent.phase import Cause
from retinue.agent.signals import MessageInserted, StatusChanged
from retinue.base.chain import Next
from retinue.base.ids import MessageId
from retinue.model.content import Source, Text, UserMessage
from retinue.session.store import SessionStore
from retinue.testing.gate import Gate
from retinue.testing.host import scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import hold, text
from tests.support.logs import outline

REPORT = Source(kind="subagent-report", form="relay")


async def test_a_waking_send_starts_an_idle_agent_within_the_call(store: SessionStore) -> None:
    seen: list[tuple[str, bool]] = []
    async with scripted_host(ScriptedModel(text("1")), store=store) as host:
        agent = await start_agent(host)
        agent.bus.on(MessageInserted, lambda e: seen.append((agent.status, e.delivery.id in agent.session.mailbox)))
        agent.follow_up("a")
        assert agent.status == "running"
        assert seen == [("idle", True)]
        await agent.wait_idle()


async def test_status_is_published_on_change_alone(store: SessionStore) -> None:
    statuses: list[str] = []
    async with scripted_host(ScriptedModel(text("1"), text("2"), text("3")), store=store) as host:
        agent = await start_agent(host)
        agent.bus.on(StatusChanged, lambda e: statuses.append(e.status))
        agent.follow_up("a")
        agent.follow_up("b")
        await agent.wait_idle()
        agent.follow_up("c")
        await agent.wait_idle()
    assert statuses == ["running", "idle", "running", "idle"]


async def test_a_wake_opens_a_turn_even_if_the_message_is_gone_by_then(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        sent = agent.follow_up("a")
        (row,) = agent.session.mailbox.next_turn
        assert agent.withdraw(row.id)
        await sent
        await agent.wait_idle()
        assert outline(agent.session.events) == ["turn 1", "end 1 completed"]


async def test_a_turn_without_a_message_is_not_made_a_step_by_what_a_layer_adds(store: SessionStore) -> None:
    extra = UserMessage(MessageId("msg-context"), (Text("today is Monday"),), Source(kind="plugin", plugin="context"))

    async def layer(request: StepInput, inner: Next[StepInput, PreStep]) -> PreStep:
        entered = await inner(request)
        return entered if isinstance(entered, Reject) else (*entered, extra)

    async with scripted_host(ScriptedModel(), store=store) as host:
        host.chains.pre_step.wrap(layer)
        agent = await start_agent(host)
        agent.follow_up("a")
        (row,) = agent.session.mailbox.next_turn
        agent.withdraw(row.id)
        await agent.wait_idle()
        assert outline(agent.session.events) == ["turn 1", "end 1 completed"]


async def test_a_wake_in_the_last_moment_before_idle_is_not_lost(store: SessionStore) -> None:
    model = ScriptedModel(text("1"), text("2"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)

        def late(event: StatusChanged) -> None:
            if event.status == "idle" and len(model.requests()) == 1:
                agent.follow_up("late")

        agent.bus.on(StatusChanged, late)
        agent.follow_up("a")
        await agent.wait_idle()
        assert model.requests()[-1].new == ("late",)


async def test_wait_idle_follows_activity_that_replaces_what_it_waited_for(store: SessionStore) -> None:
    gate = Gate()
    model = ScriptedModel(text("1"), hold(gate, text("2")))
    seen: list[str] = []
    async with scripted_host(model, store=store) as host, anyio.create_task_group() as group:
        agent = await start_agent(host)

        def again(event: StatusChanged) -> None:
            if event.status == "idle" and len(model.requests()) == 1:
                agent.follow_up("b")

        async def wait() -> None:
            await agent.wait_idle()
            seen.extend(request.state for request in model.requests())

        agent.bus.on(StatusChanged, again)
        agent.follow_up("a")
        group.start_soon(wait)
        await gate.wait_reached()
        assert seen == []
        gate.open()
    assert seen == ["answered", "answered"]


async def test_maintenance_counts_as_idle_and_remembers_a_wake(store: SessionStore) -> None:
    gate = Gate()
    model = ScriptedModel(text("1"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        host.start(lambda: agent.run_maintenance(gate.wait))
        await gate.wait_reached()
        await agent.inject("quiet")
        await agent.follow_up("a", source=REPORT)
        assert agent.status == "idle"
        assert model.requests() == ()
        gate.open()
        await agent.wait_idle()
        assert [r.new for r in model.requests()] == [("quiet", "a")]


async def test_a_remembered_wake_opens_no_turn_if_nothing_is_pending_any_more(store: SessionStore) -> None:
    gate = Gate()
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        host.start(lambda: agent.run_maintenance(gate.wait))
        await gate.wait_reached()
        agent.withdraw(await agent.follow_up("a"))
        gate.open()
        await agent.wait_idle()
        assert agent.session.events == []


async def test_a_message_after_the_abort_gets_a_turn_of_its_own(store: SessionStore) -> None:
    model = ScriptedModel(hold(Gate(), text("never")), text("2"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await model.wait_requests(1)
        agent.cancel(keep_mailbox=True)
        agent.steer("b")
        assert [row.delivery.target for row in agent.session.mailbox.next_turn] == ["next-turn"]
        await agent.wait_idle()
        assert outline(agent.session.events)[3:] == [
            "step 1 end",
            "end 1 aborted user",
            "turn 2",
            "step 1",
            "user: b",
            "model: 2",
            "step 1 end",
            "end 2 completed",
        ]


async def test_an_instruction_after_the_abort_resumes_the_whole_queue_oldest_first(store: SessionStore) -> None:
    model = ScriptedModel(hold(Gate(), text("never")), text("2"), text("3"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await model.wait_requests(1)
        agent.follow_up("b")
        agent.cancel(keep_mailbox=True)
        agent.follow_up("c")
        await agent.wait_idle()
        assert [r.new[-1] for r in model.requests()] == ["a", "b", "c"]


async def test_a_report_after_the_abort_opens_a_turn_and_leaves_the_queue_parked(store: SessionStore) -> None:
    model = ScriptedModel(hold(Gate(), text("never")), text("2"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await model.wait_requests(1)
        agent.follow_up("b")
        agent.cancel(keep_mailbox=True)
        agent.steer("found", source=REPORT)
        await agent.wait_idle()
        assert [r.new[-1] for r in model.requests()] == ["a", "found"]
        assert agent.session.mailbox.parked == 1


async def test_a_cancel_by_an_insertion_listener_does_not_make_the_message_late(store: SessionStore) -> None:
    model = ScriptedModel(hold(Gate(), text("never")))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await model.wait_requests(1)
        agent.bus.on(MessageInserted, lambda _: agent.cancel(keep_mailbox=True))
        agent.steer("b")
        await agent.wait_idle()
        (row,) = agent.session.mailbox.next_step
        assert (row.delivery.target, row.parked) == ("next-step", True)


async def test_disposal_starts_no_turn_for_what_is_pending(store: SessionStore) -> None:
    model = ScriptedModel(hold(Gate(), text("never")))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await model.wait_requests(1)
        agent.follow_up("b")
        agent.cancel(Cause("user"), keep_mailbox=True)
        agent.steer("c", source=REPORT)
        await host.agents.dispose(agent)
        assert len(model.requests()) == 1
        states = [row.state for row in await host.sessions.store.read_rows(agent.id)]
        assert states == ["claimed", "pending", "pending"]
