"""External agents that misbehave: what they say too late, spill, leave behind or forget, and how soon it is over."""

import json
import os
from pathlib import Path

import anyio
import pytest

from retinue.base.groups import lives
from retinue.errors import ExternalAgentFailed
from retinue.host.approvals import APPROVALS, Answer, Approvals, Question
from retinue.plugins.acp import ExternalConfig
from retinue.session.events import ActivationEnd, ExternalPermission
from retinue.subagent.standing import ChildApprovals
from retinue.testing.host import start_agent
from retinue.testing.model import ScriptedModel
from retinue.testing.script import calls, text
from tests.support.delegation import continuations, log, quiet
from tests.support.external import delegate, external, notes, order, outcome, program, ran, wait_note


def prompts(state: Path) -> list[str]:
    """The text of each prompt, in order."""
    frames = [json.loads(line) for line in (state / "frames").read_text().splitlines()]
    asked = [frame["params"]["prompt"] for frame in frames if frame.get("method") == "session/prompt"]
    return ["\n".join(block["text"] for block in prompt) for prompt in asked]


async def test_what_a_program_says_after_its_answer_belongs_to_nothing(state: Path) -> None:
    assert (await outcome(state, "late")).text == "in time"


# Secrets and sizes


@pytest.mark.parametrize("secret", ["sesame-" * 500, "-----BEGIN\nsesame-line\n-----END", "sesame-open"])
async def test_a_secret_is_not_shown_however_long_it_is_or_how_many_lines_it_has(state: Path, secret: str) -> None:
    came = await outcome(state, "spill", env={"TOKEN": secret})
    assert "its last words: [secret][secret]" in (came.diagnostic or "")
    assert "sesame" not in (came.diagnostic or "")


async def test_what_a_program_fails_with_is_shown_without_secrets_and_cut(state: Path) -> None:
    came = await outcome(state, f"fail with sesame-open {'and more ' * 1000}", env={"TOKEN": "sesame-open"})
    assert "with [secret] and more" in (came.diagnostic or "")
    assert len(came.diagnostic or "") < 1_500


async def test_the_last_words_are_in_the_diagnostic_whatever_script_the_failure_is_told_in(state: Path) -> None:
    came = await outcome(state, f"mutter {'𒀀' * 2_000}")
    assert (came.diagnostic or "").endswith("the end")


async def test_what_a_program_asks_for_is_logged_without_secrets_and_cut(state: Path) -> None:
    agent = program(state, env={"TOKEN": "sesame-open"})
    async with external(ScriptedModel(text("Noted.")), {"ext": agent}) as host:
        root = await start_agent(host)
        directive = f"ask use sesame-open {'and more ' * 1000}"
        child = (await continuations(host).start("acp:ext", order(root, directive))).child_id
        await quiet(host, root)
        (asked,) = [e.data for e in await log(host, child) if isinstance(e.data, ExternalPermission)]
    assert asked.title.startswith("use [secret] and more")
    assert len(asked.title) < 600


async def test_an_answer_of_which_a_part_is_too_long_to_be_read_is_a_failure_that_says_so(state: Path) -> None:
    came = await outcome(state, "overlong")
    assert came.ending == "error"
    assert "sent a line longer than 67108864 bytes before it answered session/prompt" in (came.diagnostic or "")


async def test_no_part_of_a_secret_is_shown_or_logged_where_what_a_program_asks_for_is_cut(state: Path) -> None:
    agent = program(state, env={"TOKEN": "sesame-open"})
    async with external(ScriptedModel(text("Noted.")), {"ext": agent}, child_approvals="route") as host:
        root = await start_agent(host)
        approvals = host.require(APPROVALS, needed_by="a test")
        desk = Desk(approvals)
        with approvals.answered_by(desk):
            directive = f"ask {'x' * 490} sesame-open"
            child = (await continuations(host).start("acp:ext", order(root, directive))).child_id
            await quiet(host, root)
        (asked,) = [e.data for e in await log(host, child) if isinstance(e.data, ExternalPermission)]
    (question,) = desk.questions
    assert (asked.title, asked.verb) == (question.about, "allow")
    assert asked.title == f"{'x' * 490} [secret]"


async def test_the_notice_about_a_failed_program_has_its_last_words(state: Path) -> None:
    said = f"{'so much went wrong here, ' * 12}in the end the disk was full"
    model = ScriptedModel(calls(delegate("spill")), text("Started."), text("I see."))
    async with external(model, {"ext": program(state, env={"TOKEN": said[len(said) // 2 :]})}) as host:
        root = await start_agent(host)
        await root.follow_up("Go.")
        await quiet(host, root)
    assert "its last words: [secret][secret]" in model.requests()[-1].users[-1]


# What it is told


@pytest.mark.parametrize(
    ("permissions", "approvals", "words"),
    [
        ("allow", "reject", "is allowed without anybody being asked"),
        ("reject", "route", "a call that would need an approval is rejected"),
        ("policy", "reject", "a call that would need an approval is rejected"),
    ],
)
async def test_a_program_is_told_what_becomes_of_its_questions(
    state: Path, permissions: str, approvals: ChildApprovals, words: str
) -> None:
    desk = Desk()
    agent = program(state, permissions=permissions)
    async with external(ScriptedModel(), {"ext": agent}, child_approvals=approvals) as host:
        with host.require(APPROVALS, needed_by="a test").answered_by(desk):
            await ran(host, await start_agent(host), "say hi")
    (prompt,) = prompts(state)
    assert words in prompt


async def test_a_folder_is_seen_from_that_of_the_child(state: Path, tmp_path: Path) -> None:
    async with external(ScriptedModel(), {"ext": program(state, cwd=os.path.relpath(tmp_path))}) as host:
        root = await start_agent(host)
        assert (await ran(host, root, "say hi")).text == "hi"
    frames = [json.loads(line) for line in (state / "frames").read_text().splitlines()]
    (cwd,) = [frame["params"]["cwd"] for frame in frames if frame.get("method") == "session/new"]
    assert os.path.isabs(cwd)
    assert os.path.samefile(cwd, tmp_path)


class Desk:
    """Somebody who can be asked, and allows all if it is told where; else it never answers."""

    def __init__(self, approvals: Approvals | None = None) -> None:
        self.questions: list[Question] = []
        self._approvals = approvals

    def asked(self, question: Question) -> None:
        self.questions.append(question)
        if self._approvals is not None:
            self._approvals.answer(question.id, Answer(verb="allow"))

    def withdrawn(self, question: Question) -> None:
        pass


async def test_nobody_is_asked_anything_for_a_prompt_that_was_taken_back(state: Path) -> None:
    desk = Desk()
    async with external(ScriptedModel(text("1")), {"ext": program(state)}, child_approvals="route") as host:
        root = await start_agent(host)
        with host.require(APPROVALS, needed_by="a test").answered_by(desk):
            accepted = await continuations(host).start("acp:ext", order(root, "insist"))
            await wait_note(state, "hanging")
            continuations(host).interrupt(accepted.child_id, root)
            await quiet(host, root)
    assert "answered cancelled" in notes(state)
    assert desk.questions == []


# Starting, and starting again


async def test_a_program_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    async with external(ScriptedModel(), {"ext": ExternalConfig(command="/no/such/program")}) as host:
        with pytest.raises(ExternalAgentFailed, match="^agent 'ext' cannot be started as '/no/such/program'"):
            await continuations(host).start("acp:ext", order(await start_agent(host), "say hi"))


async def test_a_task_that_may_never_have_reached_a_program_is_given_again_with_the_next_message(state: Path) -> None:
    """It was killed before it kept its session, so it gets another one."""
    async with external(ScriptedModel(text("A pity."), text("Good.")), {"ext": program(state, "vanishes")}) as host:
        root = await start_agent(host)
        child = (await continuations(host).start("acp:ext", order(root, "say one"))).child_id
        await quiet(host, root)
        await continuations(host).send(root, child, "do: say two")
        await quiet(host, root)
        ends = [event.data.outcome for event in await log(host, child) if isinstance(event.data, ActivationEnd)]
    assert ends == ["error", "completed"]
    (kept,) = (state / "s2").read_text().splitlines()
    assert kept.startswith("[note] You were cut off")
    assert "do: say one" in kept
    assert kept.endswith("do: say two")


async def test_a_task_that_was_stopped_is_not_given_again(state: Path) -> None:
    async with external(ScriptedModel(text("1"), text("2")), {"ext": program(state)}) as host:
        root = await start_agent(host)
        child = (await continuations(host).start("acp:ext", order(root, "insist"))).child_id
        await wait_note(state, "hanging")
        continuations(host).interrupt(child, root)
        await quiet(host, root)
        await continuations(host).send(root, child, "do: say back")
        await quiet(host, root)
    assert prompts(state)[-1] == "do: say back"


# Leaving


async def test_what_a_program_has_started_in_a_session_of_its_own_is_ended_with_it(state: Path) -> None:
    assert (await outcome(state, "leave apart")).text == "left one"
    (left,) = [line.removeprefix("left ") for line in notes(state) if line.startswith("left ")]
    assert not lives(int(left))


@pytest.mark.exploration
async def test_a_program_that_must_be_killed_leaves_nothing_behind(state: Path) -> None:
    """Three seconds after SIGTERM; what it has started leads a session of its own."""
    assert (await outcome(state, "leave apart", "stays", end_grace_s=0.1)).text == "left one"
    (left,) = [line.removeprefix("left ") for line in notes(state) if line.startswith("left ")]
    assert not lives(int(left))


@pytest.mark.exploration
async def test_a_host_that_is_left_does_not_wait_for_the_grace_of_its_programs(state: Path) -> None:
    """The command line waits for eight seconds; this program hears nothing and ignores SIGTERM."""
    async with external(ScriptedModel(), {"ext": program(state, end_grace_s=60)}, at_rest=False) as host:
        root = await start_agent(host)
        await continuations(host).start("acp:ext", order(root, "sleep"))
        pid = await wait_note(state, "hanging")
        with anyio.fail_after(8):
            await host.suspend()
        assert not lives(pid)
