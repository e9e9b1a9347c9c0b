"""Calls that need somebody's word: asked, decided, withdrawn, lasting over the end of a process, of any agent."""

from __future__ import annotations

import pytest

from retinue.base.ids import SessionId
from retinue.host.approvals import Answer
from retinue.host.host import Host
from retinue.model.content import text_of
from retinue.plugins.permissions import PermissionsConfig, RulesConfig
from retinue.plugins.subagent import SubagentConfig
from retinue.session.events import ToolReturned
from retinue.session.invariants import violations
from retinue.session.store import SessionStore
from retinue.subagent.continuation import CONTINUATIONS
from retinue.testing.clock import FakeClock
from retinue.testing.faults import FaultyStore, appends
from retinue.testing.host import resume_agent, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, optional, text
from retinue.tools.function import tool
from retinue.tools.tool import Tool
from tests.support.asking import ALLOW, ALWAYS, REJECT, Person, approvals, asking, by_label, decisions
from tests.support.delegation import FORK, children, log, quiet
from tests.support.stores import OpenStore


class Touches:
    """A tool, and what it was used on."""

    def __init__(self) -> None:
        self.done: list[str] = []

    @property
    def tool(self) -> Tool:
        @tool
        async def touch(what: str) -> str:
            """Touch something."""
            self.done.append(what)
            return f"touched {what}"

        return touch


async def results(host: Host, id: SessionId) -> list[str]:
    return [text_of(e.data.message.content) for e in await log(host, id) if isinstance(e.data, ToolReturned)]


async def test_a_call_waits_for_its_answer_and_runs_once_it_is_allowed(store: SessionStore) -> None:
    model, touches, person = ScriptedModel(calls(call("touch", what="a")), text("done")), Touches(), Person()
    async with asking(model, store, tools=[touches.tool], person=person) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        question = await person.of("R")
        assert (question.tool, question.arguments, question.rule) == ("touch", {"what": "a"}, "touch")
        assert (question.root, question.agent, question.path) == (agent.id, agent.id, ("R",))
        assert approvals(host).open(agent.id) == (question,)
        assert touches.done == []
        assert approvals(host).answer(question.id, ALLOW)
        assert not approvals(host).answer(question.id, REJECT)
        await agent.wait_idle()
        assert touches.done == ["a"]
        assert approvals(host).open() == ()
        assert decisions(await log(host, agent.id)) == ["asked touch", "allow by user"]
        events = [event.type for event in await log(host, agent.id)]
        assert events.index("approval/decided") < events.index("tool/start")
    assert person.gone == []


async def test_a_rejection_has_words_for_the_model(store: SessionStore) -> None:
    model = ScriptedModel(calls(call("touch", what="a")), calls(call("touch", what="b")), text("I see"))
    touches, person = Touches(), Person()
    async with asking(model, store, tools=[touches.tool], person=person) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        approvals(host).answer((await person.of("R")).id, Answer(verb="reject", words="use the left one"))
        approvals(host).answer((await person.of("R", 2)).id, REJECT)
        await agent.wait_idle()
        first, second = await results(host, agent.id)
        assert first == "Error: the user rejected this call of touch: use the left one"
        assert "Do not retry it" in second
    assert touches.done == []


async def test_allowed_from_now_on_is_not_asked_again_also_after_a_resume(open_store: OpenStore) -> None:
    clock, touches, person = FakeClock(), Touches(), Person()
    first = ScriptedModel(calls(call("touch", what="a")), calls(call("touch", what="b")), text("done"))
    async with asking(first, open_store(clock), tools=[touches.tool], person=person) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        approvals(host).answer((await person.of("R")).id, ALWAYS)
        await agent.wait_idle()
    second = ScriptedModel(calls(call("touch", what="c")), text("done"))
    async with asking(second, open_store(clock), tools=[touches.tool], person=person) as host:
        agent = await resume_agent(host, agent.id)
        await agent.follow_up("again")
        await agent.wait_idle()
        assert decisions(await log(host, agent.id)) == ["asked touch", "allow by user always"]
    assert touches.done == ["a", "b", "c"]
    assert len(person.heard) == 1


@pytest.mark.parametrize("tool_name", ["subagent", "subagent_fork"])
async def test_what_was_granted_is_not_handed_to_a_child(store: SessionStore, tool_name: str) -> None:
    touches, person, model = Touches(), Person(), ScriptedModel()
    start = calls(call(tool_name, description="C", prompt="P", run_in_background=False))
    model.script("R", calls(call("touch", what="a")), text("t1"), start, text("done"))
    model.script("C", calls(call("touch", what="b")), text("done"))
    async with asking(model, store, tools=[touches.tool], person=person) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        approvals(host).answer((await person.of("R")).id, ALWAYS)
        await agent.wait_idle()
        await agent.follow_up("delegate")
        question = await person.of("C")
        assert question.path == ("R", "C")
        approvals(host).answer(question.id, REJECT)
        await quiet(host, agent)
    assert touches.done == ["a"]


@pytest.mark.parametrize(("policy", "done"), [("reject", []), ("allow", ["a"])])
async def test_where_nobody_answers_the_policy_does_and_is_logged(
    store: SessionStore, policy: str, done: list[str]
) -> None:
    model, touches = ScriptedModel(calls(call("touch", what="a")), text("done")), Touches()
    config = PermissionsConfig(rules=RulesConfig(ask=("touch",)), when_nobody_answers=policy)  # type: ignore[arg-type]
    async with asking(model, store, tools=[touches.tool], policy=config) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        await agent.wait_idle()
        assert decisions(await log(host, agent.id)) == ["asked touch", f"{policy} by policy"]
    assert touches.done == done


async def test_a_denied_call_asks_nobody(store: SessionStore) -> None:
    model, touches, person = ScriptedModel(calls(call("touch", what="a")), text("done")), Touches(), Person()
    config = PermissionsConfig(rules=RulesConfig(ask=("touch",), deny=("tou*",)))
    async with asking(model, store, tools=[touches.tool], person=person, policy=config) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        await agent.wait_idle()
        assert await results(host, agent.id) == [
            "Error: this call of touch is not allowed: the rule 'tou*' denies it. Do not work around it"
        ]
        assert decisions(await log(host, agent.id)) == []
    assert touches.done == []


async def test_a_call_with_bad_arguments_asks_nobody(store: SessionStore) -> None:
    model, touches, person = ScriptedModel(calls(call("touch")), text("done")), Touches(), Person()
    async with asking(model, store, tools=[touches.tool], person=person) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        await agent.wait_idle()
        assert decisions(await log(host, agent.id)) == []
    assert person.heard == []


async def test_cancelling_the_turn_withdraws_the_question(store: SessionStore) -> None:
    model, touches, person = ScriptedModel(calls(call("touch", what="a"))), Touches(), Person()
    async with asking(model, store, tools=[touches.tool], person=person) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        question = await person.of("R")
        agent.cancel()
        await agent.wait_idle()
        assert person.gone == [question]
        assert not approvals(host).answer(question.id, ALLOW)
        assert decisions(await log(host, agent.id)) == ["asked touch"]
    assert touches.done == []


async def test_an_answerer_that_comes_later_hears_what_is_open_and_one_of_a_tree_comes_first(
    store: SessionStore,
) -> None:
    model, touches = ScriptedModel(calls(call("touch", what="a")), text("done")), Touches()
    early, late, other = Person(), Person(), Person()
    async with asking(model, store, tools=[touches.tool]) as host:
        undo = approvals(host).answered_by(early)
        agent = await start_agent(host)
        approvals(host).answered_by(other, root=SessionId("another"))
        await agent.follow_up("go")
        question = await early.of("R")
        undo()
        approvals(host).answered_by(late, root=agent.id)
        assert late.heard == [question]
        assert other.heard == []
        approvals(host).answer(question.id, ALLOW)
        await agent.wait_idle()
    assert touches.done == ["a"]


# --- the end of a process ---


async def _asked(open_store: OpenStore, clock: FakeClock, touches: Touches) -> tuple[SessionId, str]:
    """A process that ended while a question was open: the agent's id and the question's."""
    person = Person()
    model = ScriptedModel(calls(call("touch", what="a")))
    async with asking(model, open_store(clock), tools=[touches.tool], person=person, at_rest=False) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        return agent.id, (await person.of("R")).id


async def test_an_open_question_is_asked_again_under_the_same_id(open_store: OpenStore) -> None:
    clock, touches, person = FakeClock(), Touches(), Person()
    id, question_id = await _asked(open_store, clock, touches)
    async with asking(ScriptedModel(text("done")), open_store(clock), tools=[touches.tool], person=person) as host:
        agent = await resume_agent(host, id)
        question = await person.of(id)
        assert question.id == question_id
        approvals(host).answer(question.id, ALLOW)
        await agent.wait_idle()
        assert decisions(await log(host, id)) == ["asked touch", "allow by user"]
    assert touches.done == ["a"]


async def test_a_question_stays_open_over_any_number_of_processes(open_store: OpenStore) -> None:
    clock, touches = FakeClock(), Touches()
    id, question_id = await _asked(open_store, clock, touches)
    for _ in range(5):
        person = Person()
        model = ScriptedModel()
        async with asking(model, open_store(clock), tools=[touches.tool], person=person, at_rest=False) as host:
            await resume_agent(host, id)
            assert (await person.of(id)).id == question_id
    person = Person()
    async with asking(ScriptedModel(text("done")), open_store(clock), tools=[touches.tool], person=person) as host:
        agent = await resume_agent(host, id)
        approvals(host).answer((await person.of(id)).id, ALLOW)
        await agent.wait_idle()
    assert touches.done == ["a"]


@pytest.mark.parametrize(("answer", "next_event", "done"), [(ALLOW, "tool/start", ["a"]), (REJECT, "tool/result", [])])
async def test_a_decision_holds_after_the_end_of_the_process_that_took_it(
    open_store: OpenStore, answer: Answer, next_event: str, done: list[str]
) -> None:
    """The process ends right after the decision was stored, before anything of the call has begun."""
    clock, touches, person = FakeClock(), Touches(), Person()
    model = ScriptedModel(calls(call("touch", what="a")))
    dying = FaultyStore(open_store(clock))
    dying.die(appends(next_event))
    async with asking(model, dying, tools=[touches.tool], person=person, at_rest=False) as host:
        agent = await start_agent(host)
        await agent.follow_up("go")
        approvals(host).answer((await person.of("R")).id, answer)
        await agent.wait_idle()
    assert touches.done == []
    again = Person()
    async with asking(ScriptedModel(text("ok")), open_store(clock), tools=[touches.tool], person=again) as host:
        agent = await resume_agent(host, agent.id)
        await agent.wait_idle()
        assert decisions(await log(host, agent.id)) == ["asked touch", f"{answer.verb} by user"]
    assert touches.done == done
    assert again.heard == []


@pytest.mark.parametrize(
    ("rules", "said", "done"),
    [
        (RulesConfig(), ["asked touch", "allow by policy"], ["a"]),
        (RulesConfig(deny=("touch",)), ["asked touch"], []),
    ],
)
async def test_rules_that_changed_meanwhile_decide_what_was_asked(
    open_store: OpenStore, rules: RulesConfig, said: list[str], done: list[str]
) -> None:
    clock, touches, person = FakeClock(), Touches(), Person()
    id, _ = await _asked(open_store, clock, touches)
    config = PermissionsConfig(rules=rules)
    model = ScriptedModel(text("done"))
    async with asking(model, open_store(clock), tools=[touches.tool], person=person, policy=config) as host:
        agent = await resume_agent(host, id)
        await agent.wait_idle()
        assert decisions(await log(host, id)) == said
    assert touches.done == done
    assert person.heard == []


# --- children ---


def _three() -> ScriptedModel:
    model = ScriptedModel()
    model.script(
        "R", calls(*(call("subagent", description=n, prompt=n) for n in "ABC")), *[optional(text("noted"))] * 9
    )
    return model


async def test_three_children_ask_at_once_one_is_cancelled_and_one_survives_a_restart(open_store: OpenStore) -> None:
    clock, touches, person, model = FakeClock(), Touches(), Person(), _three()
    for name in "ABC":
        model.script(name, calls(call("touch", what=name)), optional(text("done")))
    async with asking(model, open_store(clock), tools=[touches.tool], person=person, at_rest=False) as host:
        root = await start_agent(host)
        await root.follow_up("go")
        questions = {name: await person.of(name) for name in "ABC"}
        assert {q.path for q in questions.values()} == {("R", name) for name in "ABC"}
        assert {q.id for q in approvals(host).open(root.id)} == {q.id for q in questions.values()}
        ids = {name: by_label(host, name) for name in "ABC"}
        continuations = host.require(CONTINUATIONS, needed_by="a test")
        approvals(host).answer(questions["C"].id, ALLOW)
        await continuations.wait_settled(ids["C"])
        continuations.interrupt(ids["A"], None)
        await person.wait_withdrawn(questions["A"].id)
        await continuations.wait_settled(ids["A"])
        assert touches.done == ["C"]
        assert [q.label for q in approvals(host).open()] == ["B"]
    again, second = Person(), ScriptedModel()
    second.script(root.id, *[optional(text("noted"))] * 9)
    second.script("B", text("done"))
    async with asking(second, open_store(clock), tools=[touches.tool], person=again) as host:
        root = await resume_agent(host, root.id)
        await host.require(CONTINUATIONS, needed_by="a test").recover(root)
        question = await again.of("B")
        assert question.id == questions["B"].id
        assert question.path == ("root", "B")
        approvals(host).answer(question.id, ALLOW)
        await quiet(host, root)
        assert decisions(await log(host, ids["A"])) == ["asked touch"]
        assert decisions(await log(host, ids["B"])) == ["asked touch", "allow by user"]
        for name in "ABC":
            assert violations(await log(host, ids[name]), quiescent=True) == []
    assert touches.done == ["C", "B"]
    assert [q.label for q in again.heard] == ["B"]


async def test_draining_a_tree_withdraws_the_questions_of_its_children(store: SessionStore) -> None:
    touches, person, model = Touches(), Person(), _three()
    for name in "ABC":
        model.script(name, calls(call("touch", what=name)))
    async with asking(model, store, tools=[touches.tool], person=person) as host:
        root = await start_agent(host)
        await root.follow_up("go")
        questions = [await person.of(name) for name in "ABC"]
        await host.agents.dispose(root)
        assert sorted(q.label for q in person.gone) == ["A", "B", "C"]
        assert not any(approvals(host).answer(q.id, ALLOW) for q in questions)
        assert approvals(host).open() == ()
    assert touches.done == []


@pytest.mark.parametrize("is_heard", [True, False])
async def test_children_that_shall_not_ask_are_rejected_and_know_it(store: SessionStore, is_heard: bool) -> None:
    touches, person, model = Touches(), Person(), ScriptedModel()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("started"), text("noted"))
    model.script("C", calls(call("touch", what="a")), text("done"))
    delegation = SubagentConfig(background_mode="continuable", instances=(FORK,), child_approvals="reject")
    heard = person if is_heard else None
    async with asking(model, store, tools=[touches.tool], person=heard, delegation=delegation) as host:
        root = await start_agent(host)
        await root.follow_up("go")
        await quiet(host, root)
        (child,) = await children(host, root.id)
        assert decisions(await log(host, child)) == ["asked touch", "reject by policy"]
    assert person.heard == []
    assert touches.done == []
    assert "Nobody can be asked on your behalf" in "".join(model.requests("C")[0].users)


async def test_children_whose_questions_are_heard_know_that(store: SessionStore) -> None:
    person, model = Person(), ScriptedModel()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("started"), text("noted"))
    model.script("C", text("done"))
    async with asking(model, store, person=person) as host:
        root = await start_agent(host)
        await root.follow_up("go")
        await quiet(host, root)
    assert "is put to the user" in "".join(model.requests("C")[0].users)


async def test_a_foreground_child_asks_while_its_parent_waits(store: SessionStore) -> None:
    touches, person, model = Touches(), Person(), ScriptedModel()
    model.script("R", calls(call("subagent_fork", description="C", prompt="P")), text("noted"))
    model.script("C", calls(call("touch", what="a")), text("done"))
    async with asking(model, store, tools=[touches.tool], person=person) as host:
        root = await start_agent(host)
        await root.follow_up("go")
        approvals(host).answer((await person.of("C")).id, ALLOW)
        await quiet(host, root)
    assert touches.done == ["a"]
