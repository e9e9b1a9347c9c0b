"""What one turn writes, in which order, and how it ends by itself."""

from collections.abc import Awaitable, Callable

import pytest

from retinue.agent.agent import Agent
from retinue.agent.environment import AgentOptions, PreStep, Reject, StepInput, TurnStopping
from retinue.agent.signals import AgentFailed
from retinue.base.chain import Next
from retinue.base.ids import MessageId
from retinue.model.content import Source, Text, UserMessage
from retinue.prompt.sections import AssemblyContext, Section
from retinue.session.events import RequestContext, RequestHeaderChange, TurnEnd
from retinue.session.store import SessionStore
from retinue.testing.gate import Gate
from retinue.testing.host import MODEL, scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, refuse, text, truncated
from retinue.tools.tool import ToolResult
from tests.support.logs import outline
from tests.support.tools import echo, gated, tool_of

Layer = Callable[[StepInput, Next[StepInput, PreStep]], Awaitable[PreStep]]


def turn_end(agent: Agent) -> TurnEnd:
    end = agent.session.events[-1].data
    assert isinstance(end, TurnEnd)
    return end


async def test_a_turn_without_calls_is_one_step(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(text("hello")), store=store) as host:
        agent = await start_agent(host)
        await agent.follow_up("hi")
        await agent.wait_idle()
        assert outline(agent.session.events, headers=True) == [
            "turn 1",
            "step 1",
            "user: hi",
            "request/header initial",
            "request/context",
            "model: hello",
            "step 1 end",
            "end 1 completed",
        ]


async def test_a_step_with_calls_is_followed_by_one_that_sees_their_results(store: SessionStore) -> None:
    model = ScriptedModel(calls(call("echo", words="a"), text="let me see"), text("done"))
    async with scripted_host(model, store=store, tools=[echo]) as host:
        agent = await start_agent(host)
        await agent.follow_up("hi")
        await agent.wait_idle()
        assert outline(agent.session.events) == [
            "turn 1",
            "step 1",
            "user: hi",
            "model: let me see echo()",
            "start 0 echo",
            "result 0 a",
            "step 1 end",
            "step 2",
            "model: done",
            "step 2 end",
            "end 1 completed",
        ]
        assert model.requests()[1].new == ("a",)


async def test_turns_are_numbered_on_and_steps_begin_again_at_one(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(text("1"), text("2"), text("3")), store=store) as host:
        agent = await start_agent(host)
        for words in ("a", "b", "c"):
            await agent.follow_up(words)
            await agent.wait_idle()
        lines = outline(agent.session.events)
        assert [line for line in lines if line.startswith("turn")] == ["turn 1", "turn 2", "turn 3"]
        assert [line for line in lines if line == "step 1"] == ["step 1"] * 3


async def test_the_request_is_the_whole_conversation_in_order(store: SessionStore) -> None:
    model = ScriptedModel(text("1"), text("2"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        await agent.follow_up("a")
        await agent.follow_up("b")
        await agent.wait_idle()
        assert model.requests()[1].text.split("\n") == ["a", "1", "b"]


async def test_the_header_is_logged_first_and_then_only_when_it_changes(store: SessionStore) -> None:
    model = ScriptedModel(*[text("ok")] * 4)
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        for step in range(4):
            if step == 1:
                agent.prompt.add(Section(name="persona", order=0, text="Be brief."))
            if step == 3:
                agent.tools.add(echo)
            await agent.follow_up("go")
            await agent.wait_idle()
        headers = [e.data for e in agent.session.events if isinstance(e.data, RequestHeaderChange)]
        assert [h.reason for h in headers] == ["initial", "change", "change"]
        assert [h.header.system for h in headers] == [None, "Be brief.", "Be brief."]
        assert [[t["name"] for t in h.header.tools or ()] for h in headers] == [[], [], ["echo"]]
        assert headers[0].header.config == {"model": MODEL}
        assert [r.system for r in model.requests()] == ["", *["Be brief."] * 3]


async def test_the_context_is_logged_when_the_model_changes(store: SessionStore) -> None:
    model = ScriptedModel(*[text("ok")] * 3, context_window=1000)
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        for name in ("a", "a", "b"):
            agent.options = AgentOptions(model=name).over(agent.options)
            await agent.follow_up("go")
            await agent.wait_idle()
        contexts = [e.data for e in agent.session.events if isinstance(e.data, RequestContext)]
        assert contexts == [RequestContext("scripted", "a", 1000), RequestContext("scripted", "b", 1000)]


async def test_another_provider_is_a_change_and_gets_the_whole_history(store: SessionStore) -> None:
    model, other = ScriptedModel(text("1")), ScriptedModel(text("2"), provider="other")
    async with scripted_host(model, store=store) as host:
        with host.add_client(other):
            agent = await start_agent(host)
            await agent.follow_up("a")
            await agent.wait_idle()
            agent.options = AgentOptions(provider="other", model=MODEL)
            await agent.follow_up("b")
            await agent.wait_idle()
        reasons = [e.data.reason for e in agent.session.events if isinstance(e.data, RequestHeaderChange)]
        assert reasons == ["initial"], "the header is the same, only the context is another one"
        assert other.requests()[0].text.split("\n") == ["a", "1", "b"]
        other.check()


async def test_without_a_model_the_turn_fails_and_names_what_is_missing(store: SessionStore) -> None:
    failures: list[AgentFailed] = []
    async with scripted_host(ScriptedModel(), store=store) as host:
        host.bus.on(AgentFailed, failures.append)
        agent = await start_agent(host)
        agent.options = AgentOptions()
        await agent.follow_up("hi")
        await agent.wait_idle()
        end = turn_end(agent)
        assert end.error is not None
        assert end.error.code == "MODEL_NOT_CONFIGURED"
        assert "no provider and no model" in end.error.message
        assert outline(agent.session.events)[-2:] == ["step 1 end", "end 1 error MODEL_NOT_CONFIGURED"]
    assert len(failures) == 1


async def test_a_prompt_that_cannot_be_rendered_fails_the_turn_in_its_step(store: SessionStore) -> None:
    def broken(_: AssemblyContext) -> str:
        raise OSError("gone")

    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        agent.prompt.add(Section(name="bad", order=0, text=broken))
        await agent.follow_up("hi")
        await agent.wait_idle()
        assert outline(agent.session.events) == ["turn 1", "step 1", "user: hi", "step 1 end", "end 1 error PROMPT"]


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
        assert turn_end(agent).detail == "enough"


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
        end = turn_end(agent)
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
