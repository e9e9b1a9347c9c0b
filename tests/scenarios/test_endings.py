"""How an activation ends and what its parent reads about it. Scenarios C10 (in this process), C12 and C14."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from retinue.agent.environment import Reject
from retinue.agent.phase import Cause
from retinue.session.events import TurnEnd, UserMessage
from retinue.tasks.runtime import TASKS
from retinue.tasks.wording import read_text
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import Reply, call, calls, fail, hold, optional, refuse, text, truncated
from tests.scenarios.stock import (
    CONTINUABLE,
    continuations,
    endings,
    listener,
    live,
    log,
    noop,
    notices,
    quiet,
    rows,
    said_to,
    start,
    stock,
    ticks,
    types,
)


async def test_c10_a_run_waits_for_the_child_that_never_reports_and_answers_because_of_its_notice(
    tmp_path: Path,
) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("R", calls(call("subagent", description="C", prompt="P")), text("waiting"), text("ANSWER IS 42"))
    model.script("C", hold(gate, text("42")))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        run = await app.run("T", agent=agent)
        await model.wait_requests(2, "R")
        await agent.wait_idle()
        result = None

        async def wait() -> None:
            nonlocal result
            result = await run.result()

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await ticks()
            assert result is None, "the root is idle, and its child is not"
            gate.open()
        assert result is not None
        assert (result.output, result.outcome) == ("ANSWER IS 42", "completed")
        messages = [event.data for event in await log(app, agent.id) if isinstance(event.data, UserMessage)]
        assert messages[-1].source.kind == "subagent-settled"
        assert not any("report" in types_of(request.messages) for request in model.requests("C"))


def types_of(messages: object) -> str:
    return str([call.name for message in messages for call in getattr(message, "calls", ())])  # type: ignore[attr-defined]


async def test_c12_a_last_reply_without_words_leaves_the_words_before_it(tmp_path: Path) -> None:
    model = ScriptedModel()
    listener(model)
    model.script("C", calls(call("noop"), text="useful"), truncated(""), text("more"))
    async with stock(model, tmp_path, *CONTINUABLE, tools=[noop]) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await quiet(app, agent)
        (notice,) = await notices(app, agent.id)
        assert "ran out of room" in notice
        assert "useful" in notice
        empty = [event for event in await log(app, child) if event.type == "assistant/message"][-1]
        assert empty.data.usage is not None  # type: ignore[union-attr]
        await continuations(app).send(agent, child, "go on")
        await quiet(app, agent)
        last = model.requests("C")[-1]
        assert [m.text for m in last.messages if type(m).__name__ == "AssistantMessage"] == ["useful"]  # type: ignore[union-attr]
        assert "more" in (await notices(app, agent.id))[1]
        assert "useful" not in (await notices(app, agent.id))[1], "an earlier answer is never repeated"


async def test_c12_in_the_foreground_the_error_shows_the_limit_and_the_words(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("subagent", description="C", prompt="P", run_in_background=False)), text("done"))
    model.script("C", calls(call("noop"), text="useful"), truncated(""))
    async with stock(model, tmp_path, *CONTINUABLE, tools=[noop]) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await quiet(app, agent)
        (result,) = model.requests("R")[1].results
        assert result.startswith("Error: The agent reached its token limit")
        assert result.endswith("useful")


async def forbid(step, inner):  # type: ignore[no-untyped-def]
    """A layer that rejects, once its gate is open, what says FORBIDDEN."""
    said = " ".join(str(message.content) for message in step.messages)
    if "FORBIDDEN" in said:
        await GATE.wait()
        return Reject("it is forbidden")
    return await inner(step)


GATE = Gate()


async def test_c14_a_rejected_prompt_never_returns_and_the_message_behind_it_still_runs(tmp_path: Path) -> None:
    global GATE
    GATE = Gate()
    model = ScriptedModel()
    listener(model)
    model.script("C", text("did second"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        app.host.chains.pre_step.wrap(forbid)
        agent = await app.agent(label="R")
        child = await start(app, agent, prompt="FORBIDDEN task")
        await GATE.wait_reached()
        await continuations(app).send(agent, child, "SECOND")
        GATE.open()
        await quiet(app, agent)
        outline = types(await log(app, child))
        assert outline.count("subagent/activation") == outline.count("subagent/settled") == 1
        first = outline[outline.index("turn/start") : outline.index("turn/end") + 1]
        assert first == ["turn/start", "turn/end"]
        ends = [event.data for event in await log(app, child) if isinstance(event.data, TurnEnd)]
        assert [end.reason for end in ends] == ["blocked", "completed"]
        forbidden, second = await rows(app, child)
        assert (forbidden.state, forbidden.turn, second.turn) == ("claimed", 1, 2)
        assert said_to(model.requests("C")[0])[-1] == "SECOND"
        (notice,) = await notices(app, agent.id)
        assert "did second" in notice


async def test_c14_a_rejected_prompt_alone_is_a_refusal_without_words(tmp_path: Path) -> None:
    global GATE
    GATE = Gate()
    GATE.open()
    model = ScriptedModel()
    listener(model)
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        app.host.chains.pre_step.wrap(forbid)
        agent = await app.agent(label="R")
        child = await start(app, agent, prompt="FORBIDDEN task")
        await quiet(app, agent)
        (notice,) = await notices(app, agent.id)
        assert "declined the task" in notice
        assert "There is no closing message." in notice
        assert await endings(app, child) == ["refusal"]


WORDS = {
    "completed": "has finished and is idle until you send it more",
    "max-tokens": "ran out of room",
    "refusal": "declined the task",
    "error": "failed",
}


@pytest.mark.parametrize(
    ("reply", "ending", "output"),
    [
        (text("all done"), "completed", "all done"),
        (text(""), "completed", None),
        (text("   \n"), "completed", None),
        (truncated("half of"), "max-tokens", "half of"),
        (truncated(""), "max-tokens", None),
        (refuse("I would rather not"), "refusal", "I would rather not"),
        (refuse(), "refusal", None),
        (fail("auth"), "error", None),
        (fail("context-length"), "error", None),
        (text("", reasoning="only thoughts"), "completed", None),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_each_kind_of_reply_has_its_ending_and_its_words(
    tmp_path: Path, reply: Reply, ending: str, output: str | None
) -> None:
    model = ScriptedModel()
    listener(model)
    model.script("C", reply)
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await quiet(app, agent)
        assert await endings(app, child) == [ending]
        (notice,) = await notices(app, agent.id)
        first, *rest = notice.splitlines()
        assert child in first
        assert WORDS[ending] in first
        if output is None:
            assert rest[-1] == "There is no closing message."
        else:
            assert rest[-4:] == [
                "Its closing message:",
                f'<child-message from="{child}">',
                output,
                "</child-message>",
            ]
        (row,) = [row for row in await rows(app, agent.id) if row.delivery.message.source.kind == "subagent-settled"]
        source = row.delivery.message.source
        assert (source.form, source.sender_session_id) == ("notice", child)
        assert source.summary is not None
        assert "\n" not in source.summary
        assert notice.endswith("\n")


@pytest.mark.parametrize(
    ("cause", "ending", "words"),
    [
        (Cause("limit", "timeout"), "timeout", "ran out of time"),
        (Cause("limit", "over-budget"), "over-budget", "used up its budget"),
        (Cause("hook", "a rule"), "aborted", "was stopped"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_child_that_is_stopped_by_a_limit_says_which(
    tmp_path: Path, cause: Cause, ending: str, words: str
) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", text("so far").hold_after(gate))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await gate.wait_reached()
        live(app, child).cancel(cause, keep_mailbox=True)
        await quiet(app, agent)
        (notice,) = await notices(app, agent.id)
        assert words in notice
        assert "so far" in notice
        assert await endings(app, child) == [ending]


async def test_a_child_that_failed_before_its_first_step_has_failed_and_one_that_was_stopped_was_stopped(
    tmp_path: Path,
) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)

    async def layer(step, inner):  # type: ignore[no-untyped-def]
        if step.agent.label == "F":
            raise ValueError("no way in")
        if step.agent.label == "S":
            await gate.wait()
        return await inner(step)

    async with stock(model, tmp_path, *CONTINUABLE) as app:
        app.host.chains.pre_step.wrap(layer)
        agent = await app.agent(label="R")
        failing = await start(app, agent, "F")
        stopped = await start(app, agent, "S")
        await gate.wait_reached()
        continuations(app).interrupt(stopped, agent)
        await quiet(app, agent)
        assert [await endings(app, id) for id in (failing, stopped)] == [["error"], ["aborted"]]


async def test_work_that_was_withdrawn_unrun_makes_a_completed_activation_a_stopped_one(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", text("one"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        live(app, child).scope.push_async_callback(gate.wait)
        await gate.wait_reached()
        id = await continuations(app).send(agent, child, "never mind")
        assert live(app, child).withdraw(id)
        gate.open()
        await quiet(app, agent)
        assert await endings(app, child) == ["aborted"]
        assert "one" in (await notices(app, agent.id))[0]


async def test_a_recorded_failure_stays_whatever_happens_afterwards(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    listener(model)
    model.script("C", fail("auth"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        live(app, child).scope.push_async_callback(gate.wait)
        await gate.wait_reached()
        live(app, child).cancel(Cause("user"))
        gate.open()
        await quiet(app, agent)
        assert await endings(app, child) == ["error"]


@pytest.mark.parametrize(
    "words", ["short", "a long reason, " * 20 + "and its end", "ü" * 9000], ids=["short", "long", "huge"]
)
@pytest.mark.parametrize("mode", ["continuable", "foreground", "task"])
async def test_a_reason_reaches_the_parent_whole_up_to_a_bound(mode: str, words: str, tmp_path: Path) -> None:
    model = ScriptedModel()
    flags = {"continuable": {}, "foreground": {"run_in_background": False}, "task": {"run_in_background": True}}[mode]
    setting = f"plugins.subagent.background_mode={'one-shot' if mode == 'task' else 'continuable'}"
    model.script("R", calls(call("subagent", description="C", prompt="P", **flags)), *[optional(text("ok"))] * 3)
    model.script("C", fail("bad-request", words))
    async with stock(model, tmp_path, *CONTINUABLE, setting) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await quiet(app, agent)
        if mode == "task":
            told = read_text(app.host.require(TASKS, needed_by="a test").read("subagent-1", agent.id))
        else:
            told = model.requests("R")[-1].results[-1] if mode == "foreground" else (await notices(app, agent.id))[0]
    if len(words) < 9000:
        assert words in told
    else:
        assert words[:1500] in told
        assert len(told.encode()) < 4096 + 400
