"""Requests made again from the log alone: byte for byte what was sent, whatever happened to the session."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace as changed

from retinue.agent.environment import Attempt
from retinue.agent.phase import Cause
from retinue.agent.rebuild import Rebuilt, rebuilt
from retinue.base.chain import Next
from retinue.base.ids import SessionId
from retinue.base.json import JSON
from retinue.errors import BadInput
from retinue.host.host import Host, HostOptions
from retinue.model.adapters.encoders import encoder_again
from retinue.model.adapters.openai_encoder import ChatEncoder
from retinue.model.adapters.quirks import Quirks
from retinue.model.content import Image, Text, ToolMessage, UserMessage
from retinue.model.encoding import Encoding
from retinue.model.retry import RetryPolicy
from retinue.prompt.sections import Section
from retinue.session.events import (
    AssistantReply,
    Event,
    Payload,
    RequestContext,
    StepEnd,
    StepStart,
    ToolReturned,
    encode_payload,
)
from retinue.session.store import SessionStore
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.host import resume_agent, scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, cut, fail, hold, text
from tests.support.delegation import children, delegating, quiet
from tests.support.stores import OpenStore
from tests.support.tools import echo
from tests.support.wired import WiredModel

QUIRKS = Quirks(max_tokens_field="max_completion_tokens", reasoning_field="reasoning")
AT_ONCE = HostOptions(retry=RetryPolicy(first_delay_s=0, max_retries=2))


async def stored(host: Host, id: SessionId) -> list[Event]:
    await host.sessions.writer.committed()
    return (await host.sessions.store.read(id)).events


def again(events: Sequence[Event], seq: int) -> Rebuilt:
    return rebuilt(events, seq, encoder_again)


def steps(events: Sequence[Event]) -> list[int]:
    return [event.seq for event in events if isinstance(event.data, StepStart)]


def bodies(events: Sequence[Event]) -> list[bytes]:
    """Of every step, made again; each must be identical."""
    found = [again(events, seq) for seq in steps(events)]
    assert [one.verdict for one in found] == ["identical"] * len(found), [one.reason for one in found]
    return [b"".join(one.body or ()) for one in found]


async def test_every_request_is_made_again_byte_for_byte_from_any_event_of_its_step(store: SessionStore) -> None:
    model = WiredModel(
        calls(call("echo", words="ä\n"), call("echo", raw="{bad"), text="look", reasoning="hm"),
        calls(call("nothing_like_it")),
        text("done"),
        text("more"),
    )
    async with scripted_host(model, store=store, tools=[echo]) as host:
        agent = await start_agent(host)
        await agent.send([Text("see"), Image("image/png", "aGk=")]).wait()
        await agent.wait_idle()
        agent.inject("by the way")
        agent.follow_up("and?")
        await agent.wait_idle()
        events = await stored(host, agent.id)
        assert bodies(events) == model.bodies(agent.id)
        assert len(steps(events)) == 4
    bounds = [*steps(events), len(events)]
    for first, end in zip(bounds, bounds[1:], strict=False):
        inside = [e.seq for e in events[first:end] if not e.type.startswith("turn/")]
        assert {again(events, seq).request.first for seq in inside} == {first}


async def test_what_a_step_does_not_own_is_refused_with_the_steps_beside_it(store: SessionStore) -> None:
    model = WiredModel(text("a"), text("b"))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        for words in ("one", "two"):
            agent.follow_up(words)
            await agent.wait_idle()
        events = await stored(host, agent.id)
    first, second = steps(events)
    between = next(event.seq for event in events if event.type == "turn/end")
    with pytest.raises(BadInput, match=rf"\(turn/end\) belongs to no step.* start at event {first} and {second}"):
        again(events, between)
    with pytest.raises(BadInput, match=f"there is no event {len(events)}"):
        again(events, len(events))


async def test_changes_of_prompt_tools_model_and_options_are_in_what_comes_out(store: SessionStore) -> None:
    model = WiredModel(*[text("ok")] * 5, encoder=ChatEncoder("p", QUIRKS))
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)

        async def turn() -> None:
            agent.follow_up("go on")
            await agent.wait_idle()

        await turn()
        with host.prompt.add(Section(name="more", order=1, text="Be brief.")), host.tools.add(echo):
            agent.options = changed(agent.options, max_tokens=9, body={"b": 1, "a": 1.0})
            await turn()
            agent.options = changed(agent.options, body={"a": 1.0, "b": 1})
            await turn()
            agent.options = changed(agent.options, model="another", body={"a": True, "b": 1})
            await turn()
        await turn()
        events = await stored(host, agent.id)
        assert bodies(events) == model.bodies(agent.id)
        assert len(set(model.bodies(agent.id))) == 5


async def test_a_repeated_request_a_failed_one_and_one_that_was_cut_off_are_all_known(store: SessionStore) -> None:
    gate = Gate()
    model = WiredModel(fail("server"), cut("half"), text("whole"), fail("bad-request"))
    model.script("late", text("so far").hold_after(gate))
    async with scripted_host(model, store=store, options=AT_ONCE) as host:
        agent = await start_agent(host)
        for words in ("one", "two"):
            agent.follow_up(words)
            await agent.wait_idle()
        events = await stored(host, agent.id)
        assert bodies(events) == model.bodies(agent.id)
        late = await start_agent(host, "late")
        late.follow_up("go")
        await gate.wait_reached(1)
        late.cancel(Cause("user"))
        await late.wait_idle()
        cut_off = await stored(host, late.id)
        assert bodies(cut_off) == model.bodies(late.id)
    fates = [again(events, seq).request.fate for seq in steps(events)]
    assert fates == ["answered", "unanswered"]
    assert again(cut_off, steps(cut_off)[0]).request.fate == "interrupted"


async def test_a_request_whose_process_ended_is_known_once_it_is_asked_anew(open_store: OpenStore) -> None:
    clock, gate = FakeClock(), Gate()
    model = WiredModel(calls(call("echo", words="x")), hold(gate, text("never heard")))
    store = open_store(clock)
    async with scripted_host(model, store=store, clock=clock, tools=[echo], at_rest=False) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await gate.wait_reached(1)
        events = await stored(host, agent.id)
        open_step = again(events, steps(events)[1])
        assert (open_step.verdict, open_step.request.fate) == ("unknown", "open")
        assert b"".join(open_step.body or ()) == model.bodies(agent.id)[1]
        await host.suspend()
    later = WiredModel(text("heard"))
    async with scripted_host(later, store=open_store(clock), clock=clock) as host:
        host.prompt.add(Section(name="other", order=1, text="Another build."))
        agent = await resume_agent(host, agent.id)
        await agent.wait_idle()
        events = await stored(host, agent.id)
    assert bodies(events) == [model.bodies(agent.id)[0], *later.bodies(agent.id)]


async def test_a_fork_has_its_own_requests_and_those_of_its_parent_that_it_began_with(store: SessionStore) -> None:
    model = WiredModel()
    r = model.script("R", calls(call("echo", words="x")), text("T1"))
    r.add(calls(call("subagent_fork", description="F", prompt="look back")), text("ok"))
    model.script("F", calls(call("echo", words="y")), text("seen"))
    async with delegating(model, store, tools=[echo]) as host:
        agent = await start_agent(host)
        for words in ("first", "second"):
            await agent.follow_up(words)
            await quiet(host, agent)
        (child,) = await children(host, agent.id)
        events = await stored(host, child)
        mine, theirs = model.bodies(child), model.bodies(agent.id)
        assert bodies(events) == [*theirs[:2], *mine]
        assert bodies(await stored(host, agent.id)) == theirs


async def test_what_a_layer_changes_or_answers_is_no_request_of_the_log(store: SessionStore) -> None:
    async def other_body(attempt: Attempt, inner: Next[Attempt, None]) -> None:
        await inner(changed(attempt, body=(b"{}",)))

    async def nobody(attempt: Attempt, inner: Next[Attempt, None]) -> None:
        await attempt.client.stream(attempt.request, attempt.body, attempt.sink)

    model = WiredModel(*[text("ok")] * 3)
    async with scripted_host(model, store=store) as host:
        agent = await start_agent(host)
        for layer in (other_body, nobody, None):
            undo = host.chains.model_request.wrap(layer) if layer is not None else None
            agent.follow_up("go")
            await agent.wait_idle()
            if undo is not None:
                undo()
        events = await stored(host, agent.id)
    first, second, third = (again(events, seq) for seq in steps(events))
    assert (first.verdict, first.request.sent and first.request.sent.size) == ("different", 2)
    assert (second.verdict, "a layer" in second.reason) == ("unknown", True)
    assert third.verdict == "identical"


async def test_a_client_without_an_encoder_is_named_as_the_reason(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(text("ok")), store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        events = await stored(host, agent.id)
    found = again(events, steps(events)[0])
    assert (found.verdict, found.body) == ("unknown", None)
    assert "'scripted' named no encoder" in found.reason


def forged(events: Sequence[Event], seq: int, data: Payload) -> list[Event]:
    """The log with another payload at `seq`."""
    return [Event(seq, event.time, data) if event.seq == seq else event for event in events]


async def test_a_difference_says_what_was_sent_and_where_to_look(store: SessionStore) -> None:
    model = WiredModel(calls(call("echo", words="x")), calls(call("echo", words="y")), text("done"))
    async with scripted_host(model, store=store, tools=[echo]) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        events = await stored(host, agent.id)
    one, two, three = steps(events)
    result = next(event for event in events if isinstance(event.data, ToolReturned))
    assert isinstance(result.data, ToolReturned)
    message = ToolMessage(result.data.message.call_id, (Text("forged"),))
    events = forged(events, result.seq, changed(result.data, message=message))
    found = again(events, three)
    assert again(events, one).verdict == "identical"
    assert found.verdict == "different"
    sent = found.request.sent
    assert sent is not None
    assert f"{sent.size} bytes ({sent.digest}) were sent" in found.reason
    assert f"the request of event {two} is the first that differs: look at events {one} to" in found.reason


async def test_another_version_of_the_encoder_is_said_and_compared_all_the_same(store: SessionStore) -> None:
    async with scripted_host(WiredModel(text("ok")), store=store) as host:
        agent = await start_agent(host)
        agent.follow_up("go")
        await agent.wait_idle()
        events = await stored(host, agent.id)
    (step,) = steps(events)
    (context,) = (event for event in events if isinstance(event.data, RequestContext))
    (asked,) = (event for event in events if isinstance(event.data, UserMessage))
    assert isinstance(context.data, RequestContext)
    assert isinstance(asked.data, UserMessage)

    def by(name: str, version: int, **options: JSON) -> list[Event]:
        encoding = Encoding(name, version, options)
        return forged(events, context.seq, RequestContext("scripted", "model-1", encoder=encoding))

    assert again(by("openai-chat", 99), step).verdict == "identical"
    other = forged(by("openai-chat", 99), asked.seq, changed(asked.data, content=(Text("forged"),)))
    assert "version 99 of the encoder made it, and this is version" in again(other, step).reason
    assert "no encoder 'from elsewhere'" in again(by("from elsewhere", 1), step).reason
    with pytest.raises(BadInput, match="options of encoder 'openai-chat'"):
        again(by("openai-chat", 99, images="perhaps"), step)


async def test_the_record_of_a_request_is_small(store: SessionStore) -> None:
    async with scripted_host(WiredModel(text("ok"), fail("bad-request")), store=store) as host:
        agent = await start_agent(host)
        for words in ("go", "x" * 100_000):
            agent.follow_up(words)
            await agent.wait_idle()
        events = await stored(host, agent.id)
    sizes: list[int] = []
    for event in events:
        if isinstance(event.data, AssistantReply | StepEnd) and event.data.sent is not None:
            sizes.append(len(encode_payload(event.data)) - len(encode_payload(changed(event.data, sent=None))))
    assert len(sizes) == 2
    assert max(sizes) < 60
