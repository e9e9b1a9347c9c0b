"""Runtime context: what holds now, told once, again when it changes, and taken back when nothing is left."""

import pytest

from retinue.agent.agent import Agent
from retinue.agent.environment import PreStep, Reject, StepInput
from retinue.base.chain import Next
from retinue.errors import BadInput, DuplicateName
from retinue.host.context import Contribution
from retinue.host.host import Host
from retinue.model.content import UserMessage, text_of
from retinue.session.store import SessionStore
from retinue.testing.clock import FakeClock
from retinue.testing.host import resume_agent, scripted_host, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text
from tests.support.logs import turn_end
from tests.support.stores import OpenStore
from tests.support.tools import echo


def part(name: str, words: str, order: float = 0) -> Contribution:
    return Contribution(name=name, order=order, text=words)


def told(agent: Agent) -> list[str]:
    """Every message of the runtime context, without its first line."""
    messages = [m for m in agent.session.history.messages if isinstance(m, UserMessage) and m.source.kind == "plugin"]
    return [text_of(message.content).partition("\n\n")[2] or "(nothing holds)" for message in messages]


async def turn(agent: Agent, words: str = "go") -> None:
    await agent.follow_up(words)
    await agent.wait_idle()


async def test_an_agent_without_context_reads_its_input_alone(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(text("1")), store=store) as host:
        host.context.add(part("quiet", " \n"))
        agent = await start_agent(host)
        await turn(agent)
        assert told(agent) == []


async def test_context_is_told_after_the_input_and_only_once(store: SessionStore) -> None:
    model = ScriptedModel(text("1"), text("2"))
    async with scripted_host(model, store=store) as host:
        host.context.add(part("b", "second", 2))
        host.context.add(part("a", "first", 1))
        agent = await start_agent(host)
        await turn(agent, "one")
        await turn(agent, "two")
        assert told(agent) == ["first\n\nsecond"]
    assert [users[0][:3] for users in (model.requests()[0].users, model.requests()[1].users)] == ["one", "one"]
    assert model.requests()[0].users[1].endswith("first\n\nsecond")
    assert model.requests()[1].users[2:] == ("two",)


async def test_a_change_is_told_with_the_next_step_also_within_a_turn(store: SessionStore) -> None:
    words = ["old"]
    model = ScriptedModel(calls(call("echo", words="x")), text("done"))
    async with scripted_host(model, store=store, tools=[echo]) as host:
        host.context.add(Contribution(name="a", order=0, text=lambda _: words[0]))
        agent = await start_agent(host)

        async def change(request: StepInput, inner: Next[StepInput, PreStep]) -> PreStep:
            words[0] = "old" if request.step == 1 else "new"
            return await inner(request)

        host.chains.pre_step.wrap(change)
        await turn(agent)
        assert told(agent) == ["old", "new"]


async def test_when_nothing_is_left_one_message_says_so(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(text("1"), text("2"), text("3"), text("4")), store=store) as host:
        undo = host.context.add(part("a", "holds"))
        agent = await start_agent(host)
        await turn(agent)
        undo()
        await turn(agent)
        await turn(agent)
        host.context.add(part("a", "holds"))
        await turn(agent)
        assert told(agent) == ["holds", "(nothing holds)", "holds"]


async def test_a_resumed_agent_is_told_only_what_is_new(open_store: OpenStore, clock: FakeClock) -> None:
    async with scripted_host(ScriptedModel(text("1")), store=open_store(clock)) as host:
        host.context.add(part("a", "holds"))
        agent = await start_agent(host)
        await turn(agent)
    async with scripted_host(ScriptedModel(text("2")), store=open_store(clock)) as host:
        host.context.add(part("a", "holds"))
        agent = await resume_agent(host, agent.id)
        await turn(agent)
        assert told(agent) == ["holds"]
    async with scripted_host(ScriptedModel(text("3")), store=open_store(clock)) as host:
        agent = await resume_agent(host, agent.id)
        await turn(agent)
        assert told(agent) == ["holds", "(nothing holds)"]


async def test_what_is_for_one_agent_replaces_what_is_for_all_and_reaches_nobody_else(store: SessionStore) -> None:
    model = ScriptedModel()
    model.script("A", text("a"))
    model.script("B", text("b"))
    async with scripted_host(model, store=store) as host:
        host.context.add(part("x", "for all"))
        a, b = await start_agent(host, "A"), await start_agent(host, "B")
        host.context.add_for(a, part("x", "for A", 2))
        host.context.add_for(a, part("y", "also for A", 1))
        await turn(a)
        await turn(b)
        assert told(a) == ["also for A\n\nfor A"]
        assert told(b) == ["for all"]


async def test_a_name_is_taken_once_in_a_scope(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await start_agent(host)
        host.context.add(part("x", "1"))
        with pytest.raises(DuplicateName):
            host.context.add(part("x", "2"))
        host.context.add_for(agent, part("x", "3"))
        with pytest.raises(DuplicateName):
            host.context.add_for(agent, part("x", "4"))


@pytest.mark.parametrize(("name", "order"), [("", 0.0), ("x", float("nan")), ("x", float("inf"))])
def test_a_part_needs_a_name_and_a_place(name: str, order: float) -> None:
    with pytest.raises(BadInput):
        part(name, "words", order)


async def test_a_step_that_does_not_happen_is_not_filled_with_context(store: SessionStore) -> None:
    async def empty(request: StepInput, inner: Next[StepInput, PreStep]) -> PreStep:
        return () if request.turn == 1 else Reject("no")

    async with scripted_host(ScriptedModel(), store=store) as host:
        host.context.add(part("a", "holds"))
        host.chains.pre_step.wrap(empty)
        agent = await start_agent(host)
        await turn(agent)
        assert turn_end(agent.session.events).reason == "completed"
        await turn(agent)
        assert turn_end(agent.session.events).reason == "blocked"
        assert told(agent) == []


async def _turn_with(host: Host, contribution: Contribution) -> Agent:
    host.context.add(contribution)
    agent = await start_agent(host)
    await turn(agent)
    return agent


@pytest.mark.parametrize("words", ["{{unknown}}", lambda _: 1 / 0])
async def test_a_part_that_cannot_be_rendered_fails_the_turn_before_its_step(
    store: SessionStore, words: object
) -> None:
    async with scripted_host(ScriptedModel(), store=store) as host:
        agent = await _turn_with(host, Contribution(name="bad", order=0, text=words))  # type: ignore[arg-type]
        end = turn_end(agent.session.events)
        assert end.error is not None
        assert (end.error.code, "'bad'" in end.error.message) == ("PROMPT", True)
        assert "step/start" not in [event.type for event in agent.session.events]


async def test_text_has_the_variables_of_the_prompt(store: SessionStore) -> None:
    async with scripted_host(ScriptedModel(text("1")), store=store) as host:
        agent = await _turn_with(host, part("a", "model {{model}} in {{cwd}}"))
        assert told(agent) == [f"model {agent.options.model} in {agent.cwd}"]
