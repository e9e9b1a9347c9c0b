"""Ralph: rounds of fresh agents, one after the other, until one says that the objective is reached or cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.base.ids import SessionId
from retinue.compose.app import App
from retinue.errors import ConfigError
from retinue.session.events import (
    ActivationStart,
    Descriptor,
    SandboxMode,
    ToolReturned,
    TurnEnd,
    WorkflowAgentEnd,
    WorkflowAgentStart,
    WorkflowEnd,
    WorkflowStart,
)
from retinue.subagent.outcome import Outcome
from retinue.subagent.provider import PROVIDERS, Capabilities, Run, RunRequest
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import Reply, call, calls, fail, hold, text
from tests.scenarios.stock import children, log, rows, stock

ON = "plugins.ralph={}"


def ralph(objective: str = "Count to three.", **more: Any) -> Reply:
    return calls(call("ralph", objective=objective, **more))


def says(status: str, hand_off: str) -> Reply:
    """A round delivers."""
    return calls(call("structured_output", status=status, hand_off=hand_off))


def rounds(*replies: Reply) -> ScriptedModel:
    """A model whose rounds deliver one after the other."""
    model = ScriptedModel()
    for n, reply in enumerate(replies, 1):
        model.script(f"round {n}", reply)
    return model


class Shown:
    """What became of one call: the text that its agent saw, and the log."""

    def __init__(self, text: str, events: list[Any], children: list[SessionId]) -> None:
        self.text = text
        self.events = events
        self.children = children

    def of(self, kind: type[Any]) -> list[Any]:
        return [data for data in self.events if isinstance(data, kind)]


async def run(model: ScriptedModel, folder: Path, *settings: str, **more: Any) -> Shown:
    model.script("R", ralph(**more), text("done"))
    async with stock(model, folder, ON, *settings) as app:
        return await drive(app, model)


async def drive(app: App, model: ScriptedModel) -> Shown:
    agent = await app.agent(label="R")
    await agent.follow_up("go").wait()
    await agent.wait_idle()
    events = [event.data for event in await log(app, agent.id)]
    return Shown(model.requests("R")[1].results[-1], events, await children(app, agent.id))


async def test_rounds_follow_each_other_until_one_says_that_the_objective_is_complete(tmp_path: Path) -> None:
    model = rounds(says("continue", "one"), says("continue", "one, two"), says("complete", "one, two, three"))
    shown = await run(model, tmp_path)
    assert shown.text == "Complete in round 3:\n\none, two, three"
    (result,) = shown.of(ToolReturned)
    assert result.meta == {"outcome": "complete", "rounds": 3}
    assert shown.of(WorkflowStart) == [WorkflowStart(turn=1, step=1, index=0, name="ralph")]
    assert shown.of(WorkflowAgentStart) == [
        WorkflowAgentStart(index=0, id=id, label=f"round {n}") for n, id in enumerate(shown.children, 1)
    ]
    assert [end.outcome for end in shown.of(WorkflowAgentEnd)] == ["completed"] * 3
    end = WorkflowEnd(turn=1, step=1, index=0, outcome="completed", detail="complete")
    assert shown.of(WorkflowEnd) == [end]


async def test_a_round_sees_the_objective_and_the_hand_off_before_it_and_nothing_else(tmp_path: Path) -> None:
    model = rounds(says("continue", "I wrote {one}"), says("complete", "all"))
    model.script("R", ralph("Write {everything}.", max_rounds=7), text("done"))
    async with stock(model, tmp_path, ON) as app:
        await drive(app, model)
    first, second = (model.requests(f"round {n}")[0].users[0] for n in (1, 2))
    assert "Write {everything}." in first
    assert "round 1 of at most 7" in first
    assert "Nobody has worked on it before you." in first
    assert "Write {everything}." in second
    assert "The round before you handed on:\n\nI wrote {one}\n" in second
    assert "go" not in model.requests("round 1")[0].users


async def test_a_blocked_round_ends_them_and_says_what_is_missing(tmp_path: Path) -> None:
    shown = await run(rounds(says("continue", "half"), says("blocked", "Which key?")), tmp_path)
    assert shown.text == "Blocked in round 2; nobody gets further without this:\n\nWhich key?"
    (result,) = shown.of(ToolReturned)
    assert (result.meta, result.error) == ({"outcome": "blocked", "rounds": 2}, None)


@pytest.mark.parametrize("at_most", ["the call", "the configuration"])
async def test_the_budget_of_rounds_holds(at_most: str, tmp_path: Path) -> None:
    model = rounds(says("continue", "one"), says("continue", "two"))
    if at_most == "the call":
        shown = await run(model, tmp_path, max_rounds=2)
    else:
        shown = await run(model, tmp_path, "plugins.ralph.max_rounds=2", max_rounds=9)
    assert shown.text == "Budget-limited: after round 2 there is more to do. It handed on:\n\ntwo"
    (end,) = shown.of(WorkflowEnd)
    assert (end.outcome, end.detail) == ("completed", "budget-limited")


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (fail("invalid-request", "no such model"), "error"),
        (text("I forgot to deliver"), "error it ended without a successful call of structured_output"),
    ],
)
async def test_a_failed_round_ends_them_and_the_hand_off_before_it_is_kept(
    last: Reply, why: str, tmp_path: Path
) -> None:
    shown = await run(rounds(says("continue", "half"), last), tmp_path)
    assert shown.text.startswith(f"Error: Round 2 failed: {why}")
    assert shown.text.endswith("\nThe round before it handed on:\n\nhalf")
    (result,) = shown.of(ToolReturned)
    assert (result.error.code, result.meta) == ("RALPH_ROUND_FAILED", {"outcome": "round-failed", "rounds": 2})
    (end,) = shown.of(WorkflowEnd)
    assert end.outcome == "failed"
    assert end.detail.startswith(why)


async def test_a_hand_off_that_is_too_long_is_refused_and_the_round_mends_it(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("round 1", says("complete", "x" * 16_385), says("complete", "é" * 16_384))
    shown = await run(model, tmp_path)
    assert shown.text == "Complete in round 1:\n\n" + "é" * 16_384
    assert "hand_off" in model.requests("round 1")[1].results[0]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"objective": " "}, "objective: must say what is to be reached"),
        ({"max_rounds": 0}, "max_rounds"),
    ],
)
async def test_senseless_arguments_start_no_round(arguments: dict[str, Any], why: str, tmp_path: Path) -> None:
    shown = await run(ScriptedModel(), tmp_path, **arguments)
    assert why in shown.text
    assert shown.children == []
    assert shown.of(WorkflowStart) == []


async def test_a_round_is_a_one_shot_child_that_leaves_its_parent_nothing_to_read(tmp_path: Path) -> None:
    model = rounds(says("complete", "all"))
    model.script("R", ralph(), text("done"))
    async with stock(model, tmp_path, ON, "permission=read-only", "plugins.report={}") as app:
        await drive(app, model)
        (root,) = app.host.agents.roots()
        (child,) = await children(app, root.id)
        events = [event.data for event in await log(app, child)]
        assert [data.mode for data in events if isinstance(data, Descriptor)] == ["one-shot"]
        assert not any(isinstance(data, ActivationStart) for data in events)
        assert [data.mode for data in events if isinstance(data, SandboxMode)] == ["read-only"]
        assert "report" not in model.requests("round 1")[0].tool_names
        assert len(await rows(app, root.id)) == 1


async def test_an_abort_stops_the_round_that_is_at_work(tmp_path: Path) -> None:
    model = rounds(says("continue", "half"), hold(Gate(), text("never")))
    model.script("R", ralph())
    async with stock(model, tmp_path, ON, at_rest=False) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await model.wait_requests(1, "round 2")
        agent.cancel()
        await agent.wait_idle()
        assert app.host.agents.list() == (agent,)
        events = [event.data for event in await log(app, agent.id)]
        assert [data.outcome for data in events if isinstance(data, WorkflowAgentEnd)] == ["completed", "aborted"]
        (end,) = [data for data in events if isinstance(data, WorkflowEnd)]
        assert (end.outcome, end.detail) == ("failed", "the call was cancelled")
        (result,) = [data for data in events if isinstance(data, ToolReturned)]
        assert result.error is not None
        assert "it had already made 2 rounds of ralph" in result.error.message
        _, second = await children(app, agent.id)
        (last,) = [event.data for event in await log(app, second) if isinstance(event.data, TurnEnd)]
        assert (last.reason, last.cause) == ("aborted", "parent")


async def test_by_default_a_round_starts_no_rounds_of_its_own(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("round 1", ralph("Count for me."), says("complete", "counted"))
    shown = await run(model, tmp_path)
    assert (
        "Round 1 failed: agent 'round 1' cannot be started: DEPTH_EXCEEDED" in model.requests("round 1")[1].results[0]
    )
    assert shown.text == "Complete in round 1:\n\ncounted"


async def test_a_child_that_waits_for_rounds_lends_them_its_place(tmp_path: Path) -> None:
    model = rounds(says("continue", "half"), says("complete", "all"))
    model.script("c", ralph(), text("they did"))
    model.script("R", calls(call("subagent", description="c", prompt="P")), text("done"))
    settings = ("plugins.subagent.max_concurrent=1", "plugins.subagent.enable_run_in_background=false")
    async with stock(model, tmp_path, ON, "plugins.ralph.max_depth=2", *settings) as app:
        shown = await drive(app, model)
    assert shown.text == "they did"


@pytest.mark.parametrize("setting", ["max_rounds=0", "hand_off_chars=0", "max_depth=-1", "rounds=3"])
async def test_senseless_limits_are_refused(setting: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="plugins.ralph"):
        async with stock(ScriptedModel(), tmp_path, f"plugins.ralph.{setting}"):
            pass


async def test_a_provider_whose_children_know_the_conversation_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plugins\.ralph\.provider: 'fork' cannot run rounds: its children know"):
        async with stock(ScriptedModel(), tmp_path, "plugins.ralph.provider=fork"):
            pass


class _Elsewhere:
    """A provider of one's own that comes late; its runs end at once, with a status that nobody has asked for."""

    name = "elsewhere"
    id = SessionId("far-away")
    agent = None

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities

    async def start(self, request: RunRequest) -> Run:
        return self

    async def result(self) -> Outcome:
        return Outcome(ending="completed", structured={"status": "perhaps", "hand_off": "x"})

    async def dispose(self) -> None:
        pass


async def test_a_provider_without_structured_results_is_refused_when_it_comes(tmp_path: Path) -> None:
    made = _Elsewhere(Capabilities(depth_limit=True))
    async with stock(ScriptedModel(), tmp_path, "plugins.ralph.provider=elsewhere") as app:
        providers = app.host.require(PROVIDERS, needed_by="a test")
        with pytest.raises(ConfigError, match="'elsewhere' cannot run rounds: it cannot hold"), providers.add(made):
            pass
        assert providers.get("elsewhere") is None


async def test_a_result_that_is_not_what_was_asked_for_fails_the_round(tmp_path: Path) -> None:
    made = _Elsewhere(Capabilities(depth_limit=True, output_schema=True))
    model = ScriptedModel()
    model.script("R", ralph(), text("done"))
    async with stock(model, tmp_path, "plugins.ralph.provider=elsewhere") as app:
        with app.host.require(PROVIDERS, needed_by="a test").add(made):
            shown = await drive(app, model)
    assert shown.text.startswith("Error: Round 1 failed: Invalid enum value 'perhaps'")


async def test_a_provider_that_is_not_there_fails_the_first_round(tmp_path: Path) -> None:
    shown = await run(ScriptedModel(), tmp_path, "plugins.ralph.provider=elsewhere")
    assert "Round 1 failed: agent 'round 1' cannot be started: NO_PROVIDER" in shown.text
    assert "registered: spawn, fork" in shown.text


async def test_it_is_off_unless_it_is_configured(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", text("done"))
    async with stock(model, tmp_path) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
    assert "ralph" not in model.requests("R")[0].tool_names
