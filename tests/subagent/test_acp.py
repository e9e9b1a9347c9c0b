"""External agents as children: what reaches the program, what comes back, and what its faults cost."""

import json
import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from retinue.base.groups import lives
from retinue.base.ids import SessionId
from retinue.errors import ConfigError, DepthExceeded, DuplicateChild, ToolFailure, UnsupportedCapability
from retinue.host.approvals import APPROVALS, Answer, Question
from retinue.host.host import Host
from retinue.model.content import Text, text_of
from retinue.plugins.acp import ExternalConfig
from retinue.session.events import (
    ActivationEnd,
    AssistantReply,
    ExternalPermission,
    ExternalPrompt,
    RequestHeaderChange,
    ToolReturned,
)
from retinue.subagent.lifecycle import ExternalCall
from retinue.subagent.provider import RunRequest
from retinue.testing.clock import FakeClock
from retinue.testing.host import resume_agent, start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import calls, text
from tests.acp.frames import check_frame, check_result
from tests.support.delegation import children, continuations, log, providers, quiet
from tests.support.external import AGENT, delegate, external, notes, order, outcome, program, ran, wait_note
from tests.support.stores import store_opener


async def settlements(host: Host, child: SessionId) -> list[ActivationEnd]:
    return [event.data for event in await log(host, child) if isinstance(event.data, ActivationEnd)]


# What reaches the program


async def test_a_program_gets_what_is_new_and_keeps_the_rest_itself(state: Path) -> None:
    model = ScriptedModel(calls(delegate("say one")), text("Started."), text("Heard one."), text("Heard two."))
    async with external(model, {"ext": program(state)}) as host:
        root = await start_agent(host)
        await root.follow_up("Go.")
        await quiet(host, root)
        (child,) = await children(host, root.id)
        await continuations(host).send(root, child, "do: say two")
        await quiet(host, root)
        sessions = [e.data.session for e in await log(host, child) if isinstance(e.data, ExternalPrompt)]
        assert sessions == ["s1", "s1"]
        assert [end.outcome for end in await settlements(host, child)] == ["completed", "completed"]
    first, second = (state / "s1").read_text().splitlines()
    assert first.startswith("do: say one")
    assert second == "do: say two"
    assert notes(state).count("session/load") == 1


async def test_a_session_is_resumed_without_being_told_again_where_the_program_can(state: Path) -> None:
    async with external(ScriptedModel(text("1"), text("2")), {"ext": program(state, "resumes")}) as host:
        root = await start_agent(host)
        accepted = await continuations(host).start("acp:ext", order(root, "say one"))
        await quiet(host, root)
        await continuations(host).send(root, accepted.child_id, "do: say two")
        await quiet(host, root)
    assert "session/resume" in notes(state)
    assert "session/load" not in notes(state)


async def test_a_program_that_forgets_its_sessions_has_no_continuable_children(state: Path) -> None:
    model = ScriptedModel(
        calls(delegate("say one"), delegate("say two", run_in_background=False)), text("Only the second worked.")
    )
    async with external(model, {"ext": program(state, "forgets")}) as host:
        root = await start_agent(host)
        await root.follow_up("Go.")
        await quiet(host, root)
        results = [e.data for e in await log(host, root.id) if isinstance(e.data, ToolReturned)]
        refused, answered = sorted(results, key=lambda result: result.index)
        assert refused.error is not None
        assert refused.error.code == UnsupportedCapability.code
        assert "run_in_background" in refused.error.message
        assert "two" in text_of(answered.message.content)


async def test_a_child_has_no_prompt_and_no_tools_of_ours(state: Path) -> None:
    async with external(ScriptedModel(text("Noted.")), {"ext": program(state)}) as host:
        root = await start_agent(host)
        accepted = await continuations(host).start("acp:ext", order(root, "say hi"))
        await quiet(host, root)
        headers = [e.data.header for e in await log(host, accepted.child_id) if isinstance(e.data, RequestHeaderChange)]
        assert [(header.system, header.tools) for header in headers] == [(None, None)]


async def test_a_program_sees_no_key_unless_it_is_named(state: Path, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "DEEPSEEK_API_KEY": "sk-not-for-you", "NAMED": "n-1"}
    agent = program(state, env={"GIVEN": "${NAMED}"})
    async with external(ScriptedModel(), {"ext": agent}, environ=environ) as host:
        root = await start_agent(host)
        said = (await ran(host, root, "env HOME DEEPSEEK_API_KEY NAMED GIVEN RETINUE_DELEGATION_DEPTH")).text
    assert said == (
        f'{{"HOME": "{tmp_path}", "DEEPSEEK_API_KEY": null, "NAMED": null, "GIVEN": "n-1", '
        '"RETINUE_DELEGATION_DEPTH": "1"}'
    )


async def test_every_frame_that_a_program_gets_is_one_of_the_protocol(state: Path) -> None:
    async with external(ScriptedModel(*[text("Noted.")] * 3), {"ext": program(state)}) as host:
        root = await start_agent(host)
        child = (await continuations(host).start("acp:ext", order(root, "ask"))).child_id
        await quiet(host, root)
        await continuations(host).send(root, child, "do: garbage")
        await quiet(host, root)
        await continuations(host).send(root, child, "do: hang")
        await wait_note(state, "hanging")
        continuations(host).interrupt(child, root)
        await quiet(host, root)
    frames = [json.loads(line) for line in (state / "frames").read_text().splitlines()]
    for frame in frames:
        check_frame(frame, unstable=False, to="agent")
        if "result" in frame:
            check_result("session/request_permission", frame["result"], unstable=False, of="client")
    methods = {frame["method"] for frame in frames if "method" in frame}
    assert methods == {"initialize", "session/new", "session/load", "session/prompt", "session/cancel"}
    assert any("error" in frame for frame in frames)


# What comes back


async def test_text_before_and_after_calls_stands_apart_and_calls_are_told_live(state: Path) -> None:
    heard: list[tuple[str, str, str, str]] = []
    async with external(ScriptedModel(), {"ext": program(state)}) as host:
        host.bus.on(ExternalCall, lambda event: heard.append((event.id, event.title, event.status, event.kind)))
        said = (await ran(host, await start_agent(host), "work")).text
    assert said == "Looking.\n\nFound it."
    assert heard == [("t1", "Read it", "pending", "read"), ("t1", "Read it", "completed", "read")]


async def test_of_calls_no_more_is_told_than_is_new_and_no_more_than_a_line(state: Path) -> None:
    heard: list[ExternalCall] = []
    agents = {"ext": program(state, env={"ACP_TOKEN": "sesame-open"})}
    async with external(ScriptedModel(), agents) as host:
        host.bus.on(ExternalCall, heard.append)
        await ran(host, await start_agent(host), "toil say done")
    assert [(call.id, call.kind, call.status) for call in heard] == [
        ("t1", "execute", "pending"),
        ("t1", "execute", "in_progress"),
        ("t2", "other", "pending"),
    ]
    assert heard[0].title == f"Run [secret] [31m {'x' * 101}…"
    assert heard[2].title == "a call"
    assert {(call.turn, call.step) for call in heard} == {(1, 1)}


async def test_what_was_said_before_an_interrupt_is_kept(state: Path) -> None:
    async with external(ScriptedModel(text("Noted.")), {"ext": program(state)}) as host:
        root = await start_agent(host)
        accepted = await continuations(host).start("acp:ext", order(root, "hang"))
        await wait_note(state, "hanging")
        continuations(host).interrupt(accepted.child_id, root)
        await quiet(host, root)
        (reply,) = [e.data for e in await log(host, accepted.child_id) if isinstance(e.data, AssistantReply)]
        assert (reply.message.text, reply.interrupted) == ("at it; stopped", True)
    assert notes(state)[-2:] == ["cancelled", "eof"]


@pytest.mark.parametrize(
    ("directive", "ending", "words"),
    [
        ("stop cancelled", "aborted", "cancelled its turn"),
        ("stop max_turn_requests", "error", "stopped early: max_turn_requests"),
        ("stop whatever", "error", "stopped early: whatever"),
        ("fail", "error", "the tea is cold"),
        ("die", "error", "ended with status 3"),
        ("die hard", "error", "killed by signal 9"),
        ("half", "error", "ended with status 0"),
    ],
)
async def test_other_ends_are_told_as_they_are(state: Path, directive: str, ending: str, words: str) -> None:
    came = await outcome(state, directive)
    assert came.ending == ending
    assert words in (came.diagnostic or "")


async def test_the_last_words_of_a_program_are_shown_without_secrets(state: Path) -> None:
    came = await outcome(state, "die", env={"TOKEN": "sesame-open"})
    assert "last words: disk on fire, token [secret]" in (came.diagnostic or "")


async def test_the_usage_that_a_program_tells_is_counted(state: Path) -> None:
    usage = (await outcome(state, "say hi")).usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.requests) == (12, 2, 5, 1)


# Somebody else's code


@pytest.mark.exploration
async def test_an_agent_on_the_official_sdk_works_waits_and_is_taken_up_again(state: Path) -> None:
    state.mkdir()
    agent = ExternalConfig(
        command=sys.executable,
        args=(str(AGENT.with_name("acp_sdk_agent.py")),),
        env={"ACP_STATE": str(state)},
        permissions="allow",
    )
    async with external(ScriptedModel(text("1"), text("2"), text("3")), {"ext": agent}) as host:
        root = await start_agent(host)
        request = RunRequest(parent=root, prompt=(Text("one"),))
        child = (await continuations(host).start("acp:ext", request)).child_id
        await quiet(host, root)
        await continuations(host).send(root, child, "wait")
        await wait_note(state, "waiting")
        continuations(host).interrupt(child, root)
        await quiet(host, root)
        await continuations(host).send(root, child, "three")
        await quiet(host, root)
        replies = [e.data.message.text for e in await log(host, child) if isinstance(e.data, AssistantReply)]
        assert replies == ["y: one", "waiting", "y: three"]
        assert [end.outcome for end in await settlements(host, child)] == ["completed", "aborted", "completed"]
    assert (state / "p0").read_text().splitlines() == [str(root.cwd), "one", "wait", "three"]


# Permission


@pytest.mark.parametrize(("permissions", "answer"), [("policy", "no"), ("reject", "no"), ("allow", "yes")])
async def test_what_a_program_asks_for_is_answered_once_each_time(state: Path, permissions: str, answer: str) -> None:
    assert (await outcome(state, "ask", permissions=permissions)).text == answer


class Desk:
    """Somebody who can be asked, and takes their time."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.withdrawn_ids: list[str] = []
        self.came = anyio.Event()

    def asked(self, question: Question) -> None:
        self.questions.append(question)
        self.came.set()

    def withdrawn(self, question: Question) -> None:
        self.withdrawn_ids.append(question.id)


async def test_questions_go_to_the_user_where_that_is_the_policy(state: Path) -> None:
    desk = Desk()
    async with external(ScriptedModel(text("1"), text("2")), {"ext": program(state)}, child_approvals="route") as host:
        approvals = host.require(APPROVALS, needed_by="a test")
        root = await start_agent(host, "Root")
        with approvals.answered_by(desk):
            accepted = await continuations(host).start("acp:ext", order(root, "ask"))
            await desk.came.wait()
            (question,) = desk.questions
            assert (question.path, question.about, question.rule) == (("Root", "job"), "Write a file", "acp:ext")
            assert approvals.answer(question.id, Answer(verb="allow", always=True))
            await quiet(host, root)
            await continuations(host).send(root, accepted.child_id, "do: ask")
            await quiet(host, root)
        asked = [e.data for e in await log(host, accepted.child_id) if isinstance(e.data, ExternalPermission)]
        assert [(one.title, one.verb, one.by, one.always) for one in asked] == [
            ("Write a file", "allow", "user", True),
            ("Write a file", "allow", "user", False),
        ]
        replies = [e.data for e in await log(host, accepted.child_id) if isinstance(e.data, AssistantReply)]
        assert [reply.message.text for reply in replies] == ["yes", "yes"]
        assert len(desk.questions) == 1


async def test_an_interrupt_withdraws_the_question_at_once(state: Path) -> None:
    desk = Desk()
    async with external(ScriptedModel(text("1")), {"ext": program(state)}, child_approvals="route") as host:
        approvals = host.require(APPROVALS, needed_by="a test")
        root = await start_agent(host)
        with approvals.answered_by(desk):
            accepted = await continuations(host).start("acp:ext", order(root, "ask"))
            await desk.came.wait()
            continuations(host).interrupt(accepted.child_id, root)
            await quiet(host, root)
        assert desk.withdrawn_ids == [question.id for question in desk.questions]
        (reply,) = [e.data for e in await log(host, accepted.child_id) if isinstance(e.data, AssistantReply)]
        assert reply.message.text == "cancelled"


async def test_who_may_only_read_cannot_start_a_program(state: Path) -> None:
    async with external(ScriptedModel(), {"ext": program(state)}, preset="read-only") as host:
        root = await start_agent(host)
        with pytest.raises(ToolFailure, match="another program"):
            await providers(host).start("acp:ext", order(root, "say hi"))
        with pytest.raises(ToolFailure, match="another program"):
            await continuations(host).start("acp:ext", order(root, "say hi"))
    assert notes(state) == []


async def test_depth_is_counted_over_nested_processes(state: Path) -> None:
    environ = {"RETINUE_DELEGATION_DEPTH": "3"}
    async with external(ScriptedModel(), {"ext": program(state)}, environ=environ) as host:
        root = await start_agent(host)
        with pytest.raises(DepthExceeded, match="depth 4"):
            await providers(host).start("acp:ext", order(root, "say hi", max_depth=3))
        with pytest.raises(DuplicateChild):
            await continuations(host).start("acp:ext", order(root, "say hi", max_depth=3, child_id=root.id))
        assert "4" in (await ran(host, root, "env RETINUE_DELEGATION_DEPTH")).text


# Rude programs


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("dies", "ended with status 4 before it answered initialize; its last words: no licence"),
        ("newer", "speaks version 7 of the protocol"),
        ("silent", "did not answer initialize within 0.3 s"),
    ],
)
async def test_a_program_that_cannot_be_used_says_why(state: Path, mode: str, words: str) -> None:
    came = await outcome(state, "say hi", mode, start_timeout_s=0.3 if mode == "silent" else 30, end_grace_s=0.1)
    assert came.ending == "error"
    assert words in (came.diagnostic or "")


async def test_a_program_that_is_not_there_fails_its_child_alone(tmp_path: Path) -> None:
    async with external(ScriptedModel(), {"ext": ExternalConfig(command="/no/such/program")}) as host:
        came = await ran(host, await start_agent(host), "say hi")
    assert came.ending == "error"
    assert "cannot be started as '/no/such/program'" in (came.diagnostic or "")


async def test_frames_that_make_no_sense_are_passed_over(state: Path) -> None:
    came = await outcome(state, "garbage")
    assert (came.ending, came.text) == ("completed", "answered -32601")


@pytest.mark.parametrize("directive", ["flood", "flood 9000000"])
async def test_a_flood_is_ended(state: Path, directive: str) -> None:
    came = await outcome(state, directive, end_grace_s=0.1)
    assert came.ending == "error"
    assert "characters at once" in (came.diagnostic or "")
    assert len(came.text) < 10_000_000


async def test_a_program_that_falls_silent_is_given_up(state: Path) -> None:
    came = await outcome(state, "hang", silence_s=0.5)
    assert came.ending == "error"
    assert "has said nothing for 0.5 s" in (came.diagnostic or "")


async def test_what_a_program_leaves_running_is_ended(state: Path) -> None:
    assert (await outcome(state, "leave")).text == "left one"
    (group,) = [line.partition(" ")[0] for line in (state / "notes").read_text().splitlines() if "left" in line]
    assert not lives(int(group))


@pytest.mark.exploration
async def test_a_program_that_will_not_end_is_killed(state: Path) -> None:
    """It ignores the end of its input and SIGTERM: six and three seconds of grace."""
    assert (await outcome(state, "say hi", "stays")).text == "hi"
    assert not lives(await wait_note(state, "eof"))


# Death in the middle


async def test_a_program_killed_in_the_middle_settles_once_and_is_started_again_by_a_message(state: Path) -> None:
    async with external(ScriptedModel(text("A pity."), text("Good.")), {"ext": program(state)}) as host:
        root = await start_agent(host)
        accepted = await continuations(host).start("acp:ext", order(root, "hang"))
        os.kill(await wait_note(state, "hanging"), signal.SIGKILL)
        await quiet(host, root)
        (end,) = await settlements(host, accepted.child_id)
        assert (end.outcome, "killed by signal 9" in (end.detail or "")) == ("error", True)
        await continuations(host).send(root, accepted.child_id, "do: say back")
        await quiet(host, root)
        assert [end.outcome for end in await settlements(host, accepted.child_id)] == ["error", "completed"]
    assert "session/load" in notes(state)


@pytest.mark.parametrize("mode", ["", "forgets"])
async def test_a_run_that_was_cut_off_goes_on_in_another_process(state: Path, tmp_path: Path, mode: str) -> None:
    """With a program that forgets, in a session of its own; it is told that it may have begun."""
    clock, opener = FakeClock(), store_opener("sqlite", tmp_path)
    agents = {"ext": program(state, mode, background_mode="one-shot")}
    async with external(
        ScriptedModel(calls(delegate("hang"))), agents, store=opener(clock), clock=clock, at_rest=False
    ) as host:
        root = await start_agent(host)
        await root.follow_up("Go.")
        await wait_note(state, "hanging")
    model = ScriptedModel(text("It was stopped."))
    async with external(model, agents, store=opener(clock), clock=clock) as host:
        root = await resume_agent(host, root.id)
        pid = await wait_note(state, "hanging", 2)
        os.kill(pid, signal.SIGKILL)
        await quiet(host, root)
        assert len(await children(host, root.id)) == 1
    prompts = (state / ("s2" if mode else "s1")).read_text().splitlines()
    assert prompts[-1].startswith("[note] You were cut off")
    assert "do: hang" in prompts[-1]


async def test_a_child_can_be_settled_instead_of_going_on(state: Path, tmp_path: Path) -> None:
    clock, opener = FakeClock(), store_opener("sqlite", tmp_path)
    agents = {"ext": program(state)}
    async with external(ScriptedModel(), agents, store=opener(clock), clock=clock, at_rest=False) as host:
        root = await start_agent(host)
        accepted = await continuations(host).start("acp:ext", order(root, "hang"))
        await wait_note(state, "hanging")
    model = ScriptedModel(text("I see."))
    async with external(model, agents, store=opener(clock), clock=clock, on_interrupt="settle") as host:
        await continuations(host).prepare(root.id)
        root = await resume_agent(host, root.id)
        await continuations(host).recover(root)
        await quiet(host, root)
        assert [end.outcome for end in await settlements(host, accepted.child_id)] == ["interrupted"]
    assert notes(state).count("prompt") == 1


async def test_leaving_a_host_ends_its_programs(state: Path) -> None:
    async with external(ScriptedModel(), {"ext": program(state)}, at_rest=False) as host:
        root = await start_agent(host)
        await continuations(host).start("acp:ext", order(root, "hang"))
        pid = await wait_note(state, "hanging")
    assert not lives(pid)


# Configuration


@pytest.mark.parametrize(
    ("name", "agent", "words"),
    [
        ("nobody", ExternalConfig(), "needs a command; known without one are claude"),
        ("Big Name", ExternalConfig(command="x"), "small letters"),
        ("gemini", ExternalConfig(args=("--fast",)), "args need a command"),
        ("x", ExternalConfig(command="x", env={"K": "${NOT_SET}"}), "NOT_SET is not set"),
        ("x", ExternalConfig(command="x", silence_s=0), "silence_s must be positive"),
        ("x", ExternalConfig(command="x", tool_name="no spaces"), "tool_name"),
    ],
)
async def test_an_agent_that_cannot_be_meant_is_refused_at_the_start(
    name: str, agent: ExternalConfig, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        async with external(ScriptedModel(), {name: agent}):
            pass


async def test_each_agent_has_a_tool_that_says_what_it_is_good_for(state: Path) -> None:
    agents = {
        "gemini": ExternalConfig(),
        "ext": program(state, description="Knows the tides.", tool_name="ask_harbour"),
    }
    async with external(ScriptedModel(), agents) as host:
        root = await start_agent(host)
        assert "Gemini CLI" in root.tools.view["agent_gemini"].spec.description
        assert root.tools.view["ask_harbour"].spec.description.startswith("Knows the tides.")


async def test_nothing_of_a_child_is_left_when_its_wait_is_cancelled_at_the_start(state: Path) -> None:
    async with external(ScriptedModel(), {"ext": program(state, "silent", end_grace_s=0.1)}) as host:
        root = await start_agent(host)
        async with anyio.create_task_group() as group:
            group.start_soon(continuations(host).start, "acp:ext", order(root, "say hi"))
            await wait_note(state, "started")
            group.cancel_scope.cancel()
        assert await children(host, root.id) == []
    assert not lives(await wait_note(state, "started"))
