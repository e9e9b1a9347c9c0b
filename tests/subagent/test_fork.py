"""The `fork` provider: a copy of the parent's completed turns, and nothing else of the parent."""

import pytest

from retinue.agent.agent import Agent
from retinue.agent.environment import AgentOptions, PreStep, StepInput
from retinue.base.chain import Next
from retinue.base.ids import new_message_id
from retinue.model.content import AssistantMessage, Text, UserMessage
from retinue.plugins.subagent import SubagentConfig
from retinue.session.events import (
    ActivationEnd,
    ActivationStart,
    AssistantReply,
    Descriptor,
    EndSeed,
    Event,
    Opaque,
    Payload,
    StepEnd,
    StepStart,
    TaskEnded,
    TaskStarted,
    TurnEnd,
    TurnResumed,
    TurnStart,
)
from retinue.session.folds import descriptor
from retinue.session.store import SessionStore
from retinue.subagent.provider import RunRequest
from retinue.subagent.providers.fork import completed_turns
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.host import resume_agent, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, text
from retinue.tools.tool import CallKey
from tests.support.delegation import children, delegating, log, providers, quiet, request
from tests.support.stores import OpenStore


def events(*payloads: Payload) -> list[Event]:
    return [Event(seq, 0, data) for seq, data in enumerate(payloads)]


def turn(number: int, *inside: Payload) -> tuple[Payload, ...]:
    reply = AssistantReply(turn=number, step=1, message=AssistantMessage((Text("ok"),)))
    told = UserMessage(new_message_id(), (Text("go"),))
    return (
        TurnStart(number),
        StepStart(number, 1),
        told,
        *inside,
        reply,
        StepEnd(number, 1),
        TurnEnd(turn=number, reason="completed"),
    )


def shape(seed: tuple[Event, ...]) -> list[str]:
    return [event.type for event in seed]


# --- the seed ---


def test_a_seed_stops_right_after_the_newest_completed_turn() -> None:
    whole = turn(1)
    assert shape(completed_turns(events(*whole, TurnStart(2), StepStart(2, 1)))) == shape(tuple(events(*whole)))


def test_the_first_turn_gives_no_seed() -> None:
    made = Descriptor(mode="continuable", provider="spawn")
    assert completed_turns(events(made, ActivationStart(1), TurnStart(1), StepStart(1, 1))) == ()
    assert completed_turns(()) == ()


def test_the_parents_residencies_tasks_and_processes_are_left_out_and_seqs_begin_at_0() -> None:
    copied = turn(
        1, TurnResumed(1, 1), TaskStarted(task_id="bash-1", kind="bash", label="x"), Opaque("newer/thing", {})
    )
    made = Descriptor(mode="continuable", provider="spawn")
    ended = ActivationEnd(epoch=1, outcome="completed")
    task = TaskEnded(task_id="bash-1", status="completed")
    seed = completed_turns(events(made, ActivationStart(1), *copied, ended, task, ActivationStart(2), *turn(2)))
    assert shape(seed) == ["subagent/descriptor", *shape(tuple(events(*turn(1)))) * 2]
    assert [event.seq for event in seed] == list(range(len(seed)))


# --- the child ---


async def _first_turn(agent: Agent, words: str = "first") -> None:
    await agent.follow_up(words)
    await agent.wait_idle()


async def test_a_fork_sees_completed_turns_and_its_prompt_and_not_the_turn_that_started_it(
    store: SessionStore,
) -> None:
    model = ScriptedModel()
    model.script(
        "R", text("T1"), calls(call("subagent_fork", description="F", prompt="look back"), text="looking"), text("ok")
    )
    model.script("F", text("seen"))
    async with delegating(model, store) as host:
        agent = await start_agent(host)
        await _first_turn(agent)
        length = agent.session.next_seq
        await agent.follow_up("second")
        await agent.wait_idle()
        (child,) = await children(host, agent.id)
        stored = await log(host, child)
        header = (await host.sessions.store.read(child)).header
    (seen,) = model.requests("F")
    assert seen.users[:2] == ("first", "look back")
    assert "second" not in seen.text
    assert "looking" not in seen.text
    assert header.seed_length == length
    assert isinstance(stored[length].data, EndSeed)
    assert "seen" in model.requests("R")[-1].results[-1]


async def test_a_fork_in_the_first_turn_is_like_a_fresh_child(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("subagent_fork", description="F", prompt="P")), text("ok"))
    model.script("F", text("done"))
    async with delegating(model, store) as host:
        agent = await start_agent(host)
        await _first_turn(agent)
        (child,) = await children(host, agent.id)
        stored = await log(host, child)
        assert (await host.sessions.store.read(child)).header.seed_length is None
    assert isinstance(stored[0].data, Descriptor)
    assert model.requests("F")[0].users[0] == "P"


async def test_the_snapshot_is_of_the_instant_of_the_call(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("R", text("T1"), text("T2"))
    model.script("F", text("done"))
    async with delegating(model, store) as host:
        agent = await start_agent(host)
        await _first_turn(agent)
        before = agent.session.next_seq
        run = await providers(host).start("fork", request(agent, "F"))
        await agent.follow_up("later")
        outcome = await run.result()
        await run.dispose()
        header = (await host.sessions.store.read(run.id)).header
    assert (outcome.text, header.seed_length) == ("done", before)
    assert "later" not in model.requests("F")[0].text


async def test_a_fork_of_a_fork_counts_what_it_copied(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("R", text("T1"))
    model.script("F", text("F1"))
    model.script("G", text("G1"))
    async with delegating(model, store) as host:
        agent = await start_agent(host)
        await _first_turn(agent)
        run = await providers(host).start("fork", request(agent, "F"))
        await run.result()
        assert run.agent is not None
        inner = await providers(host).start("fork", request(run.agent, "G"))
        outcome = await inner.result()
        made = descriptor(inner.agent.session.header, inner.agent.session.events) if inner.agent is not None else None
        header = inner.agent.session.header if inner.agent is not None else None
        assert header is not None
        assert header.seed_length == run.agent.session.next_seq
        await inner.dispose()
        await run.dispose()
    assert (outcome.text, made and made.label) == ("G1", "G")
    assert outcome.usage.requests == 1
    assert [users for users in model.requests("G")[0].users if len(users) < 9] == ["first", "F", "G"]


async def test_a_fork_goes_on_after_a_crash_where_its_log_stops(open_store: OpenStore, clock: FakeClock) -> None:
    first = ScriptedModel()
    gate = Gate()
    first.script("R", text("T1"), calls(call("subagent_fork", description="F", prompt="P")))
    first.script("F", hold(gate, text("never")))
    async with delegating(first, open_store(clock), at_rest=False) as host:
        agent = await start_agent(host)
        await _first_turn(agent)
        await agent.follow_up("second")
        await gate.wait_reached()
    second = ScriptedModel()
    second.script(agent.id, text("ok"))
    second.script("F", text("done"))
    async with delegating(second, open_store(clock)) as host:
        agent = await resume_agent(host, agent.id)
        await agent.wait_idle()
    (seen,) = second.requests("F")
    assert seen.users[:2] == ("first", "P")
    assert second.requests(agent.id)[0].results[-1] == "done"


async def test_a_continuable_fork_can_be_configured(store: SessionStore) -> None:
    config = SubagentConfig(provider="fork", tool_name="subagent_fork", background_mode="continuable")
    model = ScriptedModel()
    model.script("R", text("T1"), calls(call("subagent_fork", description="F", prompt="P")), text("ok"), text("noted"))
    model.script("F", text("done"))
    async with delegating(model, store, config) as host:
        agent = await start_agent(host)
        await _first_turn(agent)
        await agent.follow_up("second")
        await quiet(host, agent)
        (child,) = await children(host, agent.id)
        outline = [event.type for event in await log(host, child)]
    assert outline.count("subagent/activation") == outline.count("subagent/settled") == 1
    assert "report" in model.requests("F")[0].tool_names


# --- of a continuable child: C35 ---


async def test_c35_a_fork_of_a_continuable_child_inherits_neither_its_residency_nor_its_pending_work(
    store: SessionStore,
) -> None:
    model, gate, held = ScriptedModel(), Gate(), Gate()
    root = model.script("root", calls(call("subagent", description="R", prompt="R1")), text("started"))
    r = model.script("R", hold(gate, text("T1")), calls(call("subagent_fork", description="F", prompt="look back")))
    r.add(text("ok"), text("b done"))
    model.script("F", hold(held, text("seen")))
    async with delegating(model, store) as host:
        agent = await start_agent(host, "root")
        await agent.follow_up("start")
        await gate.wait_reached()
        await agent.wait_idle()
        (child,) = await children(host, agent.id)
        root.add(
            calls(
                call("send_message", subagent_id=child, message="A"),
                call("send_message", subagent_id=child, message="B"),
            ),
            text("queued"),
            text("noted"),
        )
        await agent.follow_up("queue")
        await model.wait_requests(4, "root")
        gate.open()
        await held.wait_reached()
        (fork,) = await children(host, child)
        live = host.agents.get(fork)
        assert live is not None
        assert [row.delivery.message.content for row in live.session.mailbox.next_turn] == []
        held.open()
        await quiet(host, agent)
        stored = await store.read(fork)
    (seen,) = model.requests("F")
    assert [words for words in seen.users if not words.startswith("[context]")] == ["R1", "look back"]
    assert seen.messages[2] == AssistantMessage((Text("T1"),))
    made = descriptor(stored.header, stored.events)
    assert made is not None
    assert (made.mode, made.provider, made.label) == ("one-shot", "fork", "F")
    assert stored.header.seed_length is not None
    copied = [event.type for event in stored.events[: stored.header.seed_length]]
    assert copied[0] == "subagent/descriptor"
    assert copied[-1] == "turn/end"
    assert not {"subagent/activation", "subagent/settled"} & {event.type for event in stored.events}
    assert "report" in model.requests("R")[0].tool_names
    assert "report" not in seen.tool_names
    assert "`report`" not in seen.system


async def test_c35_a_fork_takes_no_messages_and_owns_none_of_the_children_it_has_read_about(
    store: SessionStore,
) -> None:
    model = ScriptedModel()
    r = model.script("R", calls(call("subagent", description="C", prompt="P")), text("started"), text("noted"))
    model.script("C", text("c done"))
    f = model.script("F")
    async with delegating(model, store) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        await quiet(host, agent)
        (child,) = await children(host, agent.id)
        f.add(
            calls(
                call("send_message", subagent_id=child, message="for me?"),
                call("interrupt_agent", agent_id=child),
                call("list_agents"),
            ),
            text("they are not mine"),
        )
        r.add(calls(call("subagent_fork", description="F", prompt="look")), text("ok"))
        await agent.follow_up("look")
        await quiet(host, agent)
        fork = next(id for id in await children(host, agent.id) if id != child)
        r.add(calls(call("send_message", subagent_id=fork, message="more")), text("refused"))
        await agent.follow_up("more")
        await quiet(host, agent)
    results = model.requests("F")[-1].results[-3:]
    assert agent.id in results[0]
    assert "belongs to" in results[0]
    assert "(no subagents)" in results[2]
    assert "was a single run" in model.requests("R")[-1].results[-1]


@pytest.mark.parametrize("provider", ["spawn", "fork"])
async def test_a_child_that_was_cut_off_before_its_first_request_asks_the_model_it_was_given(
    open_store: OpenStore, clock: FakeClock, provider: str
) -> None:
    first, gate = ScriptedModel(), Gate()
    first.script("R", text("T1"))
    own, base = AgentOptions(model="model-2", body={"effort": "low"}), AgentOptions(body={"seed": 1})

    async def wait(request: StepInput, inner: Next[StepInput, PreStep]) -> PreStep:
        if request.agent.label == "F":
            await gate.wait()
        return await inner(request)

    def asked(parent: Agent) -> RunRequest:
        key = CallKey(session_id=parent.id, seq=0, index=0)
        return request(parent, "F", key=key, options=own)

    async with delegating(first, open_store(clock), at_rest=False) as host:
        agent = await start_agent(host, options=base)
        await _first_turn(agent)
        host.chains.pre_step.wrap(wait)
        await providers(host).start(provider, asked(agent))
        await gate.wait_reached()
    second = ScriptedModel()
    second.script("F", text("done"))
    async with delegating(second, open_store(clock)) as host:
        run = await providers(host).start(provider, asked(await resume_agent(host, agent.id)))
        await run.result()
        await run.dispose()
    (seen,) = second.requests("F")
    assert (seen.model, seen.options) == ("model-2", {"effort": "low"})
