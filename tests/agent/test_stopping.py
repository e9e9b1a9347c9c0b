"""Cancelling: what ends, what is kept, what is withdrawn, and that the log is whole afterwards."""

from collections.abc import Callable, Sequence

import pytest

from retinue.agent.agent import Agent
from retinue.agent.environment import PreStep, StepInput
from retinue.agent.phase import Cause
from retinue.base.chain import Next
from retinue.host.host import HostOptions
from retinue.model.content import AssistantMessage, Source, Text
from retinue.model.retry import RetryPolicy
from retinue.session.events import Event, TurnEnd
from retinue.session.session import Session
from retinue.session.store import SessionStore
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.host import resume_agent, scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, fail, hold, text
from retinue.tools.function import tool
from retinue.tools.tool import ToolContext
from tests.support.logs import outline
from tests.support.stores import OpenStore
from tests.support.tools import gated

REPORT = Source(kind="subagent-report", form="relay")


async def test_what_was_visible_of_a_stream_is_kept_and_its_calls_are_dropped(store: SessionStore) -> None:
    gate = Gate()
    model = ScriptedModel(calls(call("slow"), text="so far", reasoning="hm").hold_after(gate), text("ok"))
    async with scripted_host(model, store=store, tools=[gated("slow", gate)]) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await gate.wait_reached()
        agent.cancel(Cause("parent"))
        await agent.wait_idle()
        assert outline(agent.session.events) == [
            "turn 1",
            "step 1",
            "user: a",
            "model: so far [interrupted]",
            "step 1 end",
            "end 1 aborted parent",
        ]
        assert model.requests()[0].state == "aborted"
        agent.follow_up("again")
        await agent.wait_idle()
        assert model.requests()[1].text.split("\n") == ["a", "so far", "again"]


async def test_with_nothing_visible_no_message_is_logged(store: SessionStore) -> None:
    model = ScriptedModel(hold(Gate(), text("never")))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await model.wait_requests(1)
        agent.cancel()
        await agent.wait_idle()
        assert outline(agent.session.events)[2:] == ["user: a", "step 1 end", "end 1 aborted user"]


async def test_an_abort_in_the_pre_step_chain_consumes_the_message_without_a_step(store: SessionStore) -> None:
    gate = Gate()

    async def layer(request: StepInput, inner: Next[StepInput, PreStep]) -> PreStep:
        await gate.wait()
        return await inner(request)

    async with scripted_host(ScriptedModel(), store=store) as host:
        host.chains.pre_step.wrap(layer)
        agent = await start_agent(host)
        agent.follow_up("a")
        await gate.wait_reached()
        agent.cancel(keep_mailbox=True)
        await agent.wait_idle()
        assert outline(agent.session.events) == ["turn 1", "end 1 aborted user"]
        assert [row.state for row in await host.sessions.store.read_rows(agent.id)] == ["claimed"]


async def test_an_abort_before_the_driver_began_still_writes_the_turn(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        agent.cancel(keep_mailbox=True)
        await agent.wait_idle()
        assert outline(agent.session.events) == ["turn 1", "end 1 aborted user parked=1"]


async def test_running_bodies_are_cancelled_and_later_calls_never_start(store: SessionStore) -> None:
    trace: list[str] = []
    gate = Gate()
    slow = gated("slow", gate, safe=False, trace=trace)
    model = ScriptedModel(calls(call("slow", words="x"), call("slow", words="y")))
    async with scripted_host(model, store=store, tools=[slow]) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await gate.wait_reached()
        agent.cancel()
        await agent.wait_idle()
        assert outline(agent.session.events)[3:] == [
            "model: slow() slow()",
            "start 0 slow",
            "result 0 ABORTED",
            "result 1 ABORTED_BEFORE_DISPATCH",
            "step 1 end",
            "end 1 aborted user",
        ]
    assert trace == ["x begins"]


async def test_an_aborted_call_still_names_what_it_made(store: SessionStore) -> None:
    gate = Gate()

    @tool(safe=True)
    async def make(ctx: ToolContext) -> str:
        """Make something."""
        ctx.created.append("thing-1")
        await gate.wait()
        return "made"

    async with scripted_host(ScriptedModel(calls(call("make"))), store=store, tools=[make]) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await gate.wait_reached()
        agent.cancel()
        await agent.wait_idle()
        result = agent.session.history.messages[-1]
        assert not isinstance(result, AssistantMessage)
        assert isinstance(result.content[0], Text)
        assert "thing-1" in result.content[0].text


async def test_a_body_that_succeeds_after_the_abort_counts_as_aborted(store: SessionStore) -> None:
    @tool(safe=True)
    async def suicide(ctx: ToolContext) -> str:
        """Cancel the caller and answer all the same."""
        assert isinstance(ctx.caller, Agent)
        ctx.caller.cancel(Cause("hook", "enough"))
        return "made it"

    async with scripted_host(ScriptedModel(calls(call("suicide"))), store=store, tools=[suicide]) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await agent.wait_idle()
        assert outline(agent.session.events)[-3:] == ["result 0 ABORTED", "step 1 end", "end 1 aborted hook"]


async def test_a_call_that_policy_still_considers_never_started(store: SessionStore) -> None:
    gate = Gate()

    async def ask(request: object, inner: Callable[..., object]) -> object:
        await gate.wait()
        return inner(request)

    model = ScriptedModel(calls(call("slow")))
    async with scripted_host(model, store=store, tools=[gated("slow", Gate())]) as host:
        host.chains.tool_call.wrap(ask)  # pyright: ignore[reportArgumentType]
        agent = await start_agent(host)
        agent.follow_up("a")
        await gate.wait_reached()
        agent.cancel()
        await agent.wait_idle()
        assert outline(agent.session.events)[4:] == [
            "result 0 ABORTED_BEFORE_DISPATCH",
            "step 1 end",
            "end 1 aborted user",
        ]


async def test_an_abort_during_back_off_stops_the_retry_at_once(store: SessionStore, clock: FakeClock) -> None:
    policy = RetryPolicy(first_delay_s=2, jitter=0)
    model = ScriptedModel(text("partial").then(fail("server")))
    async with scripted_host(model, store=store, clock=clock, options=HostOptions(retry=policy)) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await clock.wait_sleeping(2)
        agent.cancel()
        await agent.wait_idle()
        assert outline(agent.session.events)[2:] == ["user: a", "step 1 end", "end 1 aborted user"]


async def test_stop_withdraws_what_users_and_parents_sent_and_keeps_the_rest_quiet(store: SessionStore) -> None:
    model = ScriptedModel(hold(Gate(), text("never")), text("2"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await model.wait_requests(1)
        agent.follow_up("user")
        agent.steer("parent", source=Source(kind="coordinator", form="relay"))
        agent.steer("report", source=REPORT)
        agent.cancel()
        await agent.wait_idle()
        assert [row.id in agent.session.mailbox for row in agent.session.mailbox.next_step] == [True]
        rows = await host.sessions.store.read_rows(agent.id)
        assert [(row.state, row.delivery.wake) for row in rows] == [
            ("claimed", True),
            ("withdrawn", True),
            ("withdrawn", True),
            ("pending", False),
        ]
        assert len(model.requests()) == 1
        agent.follow_up("b")
        await agent.wait_idle()
        assert model.requests()[1].new[-2:] == ("report", "b")


async def test_stop_forgets_a_remembered_wake(store: SessionStore) -> None:
    model = ScriptedModel(hold(Gate(), text("never")))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await model.wait_requests(1)
        agent.cancel(keep_mailbox=True)
        agent.follow_up("b")
        agent.cancel()
        await agent.wait_idle()
        assert outline(agent.session.events)[-1] == "end 1 aborted user"


async def test_the_first_cause_wins(store: SessionStore) -> None:
    model = ScriptedModel(hold(Gate(), text("never")))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await model.wait_requests(1)
        agent.cancel(Cause("limit", "tokens"))
        agent.cancel(Cause("user"))
        await agent.wait_idle()
        end = agent.session.events[-1].data
        assert isinstance(end, TurnEnd)
        assert (end.cause, end.detail) == ("limit", "tokens")


async def test_cancelling_an_idle_agent_clears_its_lists_and_is_not_armed_against_later_work(
    store: SessionStore,
) -> None:
    model = ScriptedModel(text("1"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        await agent.inject("gone")
        agent.cancel()
        assert len(agent.session.mailbox) == 0
        await agent.inject("kept")
        agent.cancel(keep_mailbox=True)
        agent.follow_up("b")
        await agent.wait_idle()
        assert model.requests()[0].new == ("kept", "b")
        assert outline(agent.session.events)[-1] == "end 1 completed"


async def test_an_interrupted_queue_is_parked_across_a_restart_until_the_user_speaks(
    open_store: OpenStore, clock: FakeClock
) -> None:
    model = ScriptedModel(hold(Gate(), text("never")))
    async with scripted_host(model, store=open_store(clock)) as host:
        agent = await start_agent(host)
        id = agent.id
        agent.follow_up("a")
        await model.wait_requests(1)
        agent.follow_up("b")
        agent.follow_up("d")
        agent.cancel(Cause("parent"), keep_mailbox=True)
        await agent.wait_idle()
        assert outline(agent.session.events)[-1] == "end 1 aborted parent parked=2"

    model = ScriptedModel(text("1"), text("2"), text("3"))
    async with scripted_host(model, store=open_store(clock)) as host:
        agent = await resume_agent(host, id)
        assert agent.status == "idle"
        assert agent.session.mailbox.parked == 2
        await agent.follow_up("e")
        await agent.wait_idle()
        assert [r.new[-1] for r in model.requests()] == ["b", "d", "e"]


async def test_a_failed_turn_parks_the_queue_and_a_report_does_not_resume_it(store: SessionStore) -> None:
    gate = Gate()
    model = ScriptedModel(hold(gate, fail("auth")), text("2"), text("3"), text("4"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("a")
        await gate.wait_reached()
        agent.follow_up("b")
        gate.open()
        await agent.wait_idle()
        assert outline(agent.session.events)[-1] == "end 1 error MODEL_AUTH parked=1"
        agent.steer("report", source=REPORT)
        await agent.wait_idle()
        agent.follow_up("c")
        await agent.wait_idle()
        assert [r.new[-1] for r in model.requests()] == ["a", "report", "b", "c"]


@pytest.mark.parametrize("at", ["turn/start", "user/message", "assistant/message", "tool/start", "step/end"])
@pytest.mark.parametrize("keep_mailbox", [True, False])
async def test_a_cancel_from_inside_an_observer_is_like_any_other(
    store: SessionStore, at: str, keep_mailbox: bool
) -> None:
    model = ScriptedModel()
    script = model.script("R", calls(call("slow")), text("never"))
    gate = Gate()
    gate.open()
    async with scripted_host(model, store=store, tools=[gated("slow", gate)], at_rest=False) as host:
        agent = await start_agent(host)

        def observer(session: Session, events: Sequence[Event]) -> None:
            if any(event.type == at for event in events):
                agent.cancel(Cause("hook", at), keep_mailbox=keep_mailbox)

        agent.session.observe(observer)
        agent.follow_up("a")
        await agent.wait_idle()
        lines = outline(agent.session.events)
        assert lines[-1].startswith("end 1 aborted hook")
        assert lines[-2] == "step 1 end"
        assert script.used <= 1


async def test_a_stop_from_inside_an_observer_clears_the_mailbox_too(store: SessionStore) -> None:
    gate = Gate()
    model = ScriptedModel(hold(gate, text("1")))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)

        def observer(session: Session, events: Sequence[Event]) -> None:
            if any(event.type == "assistant/message" for event in events):
                agent.cancel()

        agent.session.observe(observer)
        agent.follow_up("a")
        await gate.wait_reached()
        agent.follow_up("b")
        gate.open()
        await agent.wait_idle()
        assert outline(agent.session.events)[-1] == "end 1 aborted user"
        assert len(agent.session.mailbox) == 0
