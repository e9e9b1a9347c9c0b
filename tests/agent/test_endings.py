"""How turns end: token ceiling, refusal, rejection, emptied batches, failing layers, conclusions."""

import pytest

from retinue.agent.environment import PreStep, Reject, StepInput, TurnStopping
from retinue.base.chain import Next
from retinue.base.ids import MessageId
from retinue.model.content import Source, Text, UserMessage
from retinue.session.store import SessionStore
from retinue.testing.gate import Gate
from retinue.testing.host import scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, refuse, text, truncated
from retinue.tools.tool import ToolResult
from tests.support.logs import outline, turn_end
from tests.support.tools import echo, gated, tool_of


async def test_the_token_ceiling_is_sticky_and_its_calls_are_dropped(store: SessionStore) -> None:
    model = ScriptedModel(truncated("half", call("echo", words="x")), text("whole"))
    async with scripted_host(model, store=store, tools=[echo]) as host:
        agent = await start_agent(host)
        await agent.follow_up("hi")
        await model.wait_requests(1)
        await agent.steer("go on")
        await agent.wait_idle()
        assert outline(agent.session.events) == [
            "turn 1",
            "step 1",
            "user: hi",
            "model: half [length]",
            "step 1 end",
            "step 2",
            "user: go on",
            "model: whole",
            "step 2 end",
            "end 1 max-tokens",
        ]


async def test_an_empty_truncated_reply_is_logged_for_its_usage_and_not_sent_again(store: SessionStore) -> None:
    model = ScriptedModel(truncated(""), text("ok"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        await agent.follow_up("a")
        await agent.wait_idle()
        await agent.follow_up("b")
        await agent.wait_idle()
        assert "model: [length]" in outline(agent.session.events)
        assert agent.session.turns.usage.requests == 2
        assert model.requests()[1].text.split("\n") == ["a", "b"]


async def test_the_queue_goes_on_after_a_refusal(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(refuse("no"), text("yes")), store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("bad")
        agent.follow_up("good")
        await agent.wait_idle()
        assert outline(agent.session.events) == [
            "turn 1",
            "step 1",
            "user: bad",
            "model: no [content-filter]",
            "step 1 end",
            "end 1 blocked model",
            "turn 2",
            "step 1",
            "user: good",
            "model: yes",
            "step 1 end",
            "end 2 completed",
        ]


async def test_a_rejected_first_batch_leaves_no_step_and_the_next_message_runs(store: SessionStore) -> None:
    arrived, allowed = Gate("arrived"), Gate("allowed")

    async def layer(request: StepInput, inner: Next[StepInput, PreStep]) -> PreStep:
        if any(b.text == "FORBIDDEN" for m in request.messages for b in m.content if isinstance(b, Text)):
            arrived.open()
            await allowed.wait()
            return Reject("forbidden")
        return await inner(request)

    async with scripted_host(ScriptedModel(text("did second")), store=store) as host:
        host.chains.pre_step.wrap(layer)
        agent = await start_agent(host)
        await agent.follow_up("FORBIDDEN")
        await arrived.wait()
        await agent.follow_up("SECOND")
        allowed.open()
        await agent.wait_idle()
        assert outline(agent.session.events) == [
            "turn 1",
            "end 1 blocked hook",
            "turn 2",
            "step 1",
            "user: SECOND",
            "model: did second",
            "step 1 end",
            "end 2 completed",
        ]
        rows = await host.sessions.store.read_rows(agent.id)
        assert [(row.state, row.turn) for row in rows] == [("claimed", 1), ("claimed", 2)]


async def test_a_rejection_ends_a_turn_that_has_run_steps(store: SessionStore) -> None:
    async def layer(request: StepInput, inner: Next[StepInput, PreStep]) -> PreStep:
        return Reject("enough") if request.step == 2 else await inner(request)

    async with scripted_host(ScriptedModel(calls(call("echo", words="a"))), store=store, tools=[echo]) as host:
        agent = await start_agent(host)
        agent.chains.pre_step.wrap(layer)
        await agent.follow_up("hi")
        await agent.wait_idle()
        assert outline(agent.session.events)[-2:] == ["step 1 end", "end 1 blocked hook"]
        assert turn_end(agent.session.events).detail == "enough"


async def test_an_emptied_first_batch_closes_the_turn_and_consumes_the_message(store: SessionStore) -> None:
    async def layer(_: StepInput, _inner: Next[StepInput, PreStep]) -> PreStep:
        return ()

    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        agent.chains.pre_step.wrap(layer)
        await agent.follow_up("hi")
        await agent.wait_idle()
        assert outline(agent.session.events) == ["turn 1", "end 1 completed"]
        assert [row.state for row in await host.sessions.store.read_rows(agent.id)] == ["claimed"]


async def test_an_emptied_follow_on_batch_closes_the_turn_without_another_step(store: SessionStore) -> None:
    async def layer(request: StepInput, inner: Next[StepInput, PreStep]) -> PreStep:
        return () if request.step == 2 else await inner(request)

    model = ScriptedModel(text("ok"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.chains.pre_step.wrap(layer)
        await agent.follow_up("hi")
        await model.wait_requests(1)
        agent.steer("more")
        await agent.wait_idle()
        assert outline(agent.session.events)[-2:] == ["step 1 end", "end 1 completed"]
        assert len(agent.session.mailbox) == 0


async def test_the_pre_step_chain_may_replace_what_enters(store: SessionStore) -> None:
    extra = UserMessage(MessageId("msg-context"), (Text("today is Monday"),), Source(kind="plugin", plugin="context"))
    seen: list[tuple[int, int, int]] = []

    async def layer(request: StepInput, inner: Next[StepInput, PreStep]) -> PreStep:
        seen.append((request.turn, request.step, len(request.messages)))
        entered = await inner(request)
        assert not isinstance(entered, Reject)
        return (*entered, extra)

    model = ScriptedModel(text("ok"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        agent.chains.pre_step.wrap(layer)
        await agent.follow_up("hi")
        await agent.wait_idle()
        assert model.requests()[0].users == ("hi", "today is Monday")
        assert seen == [(1, 1, 1)]


async def test_a_failing_pre_step_layer_ends_the_turn_as_error_and_consumes_the_message(store: SessionStore) -> None:
    async def layer(_: StepInput, _inner: Next[StepInput, PreStep]) -> PreStep:
        raise ValueError("broken") from OSError("disk")

    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        agent.chains.pre_step.wrap(layer)
        await agent.follow_up("hi")
        await agent.wait_idle()
        assert outline(agent.session.events) == ["turn 1", "end 1 error UNKNOWN"]
        end = turn_end(agent.session.events)
        assert end.error is not None
        assert end.error.message == "ValueError: broken <- OSError: disk"
        assert [row.state for row in await host.sessions.store.read_rows(agent.id)] == ["claimed"]


async def test_what_a_turn_stopping_layer_steers_in_continues_the_turn(store: SessionStore) -> None:
    told: list[int] = []

    async def layer(request: TurnStopping, inner: Next[TurnStopping, None]) -> None:
        told.append(request.turn)
        if len(told) == 1:
            request.agent.steer("check once more")
        await inner(request)

    async with scripted_host(ScriptedModel(text("done"), text("checked")), store=store) as host:
        host.chains.turn_stopping.wrap(layer)
        agent = await start_agent(host)
        await agent.follow_up("hi")
        await agent.wait_idle()
        assert outline(agent.session.events)[4:] == [
            "step 1 end",
            "step 2",
            "user: check once more",
            "model: checked",
            "step 2 end",
            "end 1 completed",
        ]
    assert told == [1, 1]


async def test_a_concluding_result_ends_the_turn_after_its_whole_step(store: SessionStore) -> None:
    finish = tool_of("finish", lambda _: ToolResult(content=(Text("finished"),), concludes=True))
    model = ScriptedModel(calls(call("finish"), call("echo", words="a")))
    async with scripted_host(model, store=store, tools=[finish, echo]) as host:
        agent = await start_agent(host)
        await agent.follow_up("hi")
        await agent.wait_idle()
        assert outline(agent.session.events)[-4:] == ["start 1 echo", "result 1 a", "step 1 end", "end 1 completed"]


async def test_a_concluding_result_waits_for_pending_input(store: SessionStore) -> None:
    gate = Gate()
    finish = tool_of("finish", lambda _: ToolResult(content=(Text("finished"),), concludes=True))
    model = ScriptedModel(calls(call("slow"), call("finish")), text("read it"))
    async with scripted_host(model, store=store, tools=[finish, gated("slow", gate)]) as host:
        agent = await start_agent(host)
        await agent.follow_up("hi")
        await gate.wait_reached()
        await agent.inject("one thing more")
        gate.open()
        await agent.wait_idle()
        assert outline(agent.session.events)[-5:] == [
            "step 2",
            "user: one thing more",
            "model: read it",
            "step 2 end",
            "end 1 completed",
        ]


@pytest.mark.parametrize("words", ["", "  \n"])
async def test_a_message_without_content_is_refused(store: SessionStore, words: str) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        with pytest.raises(Exception, match="needs some text"):
            agent.follow_up(words)
        assert agent.status == "idle"
