"""Workflows: scripts in processes of their own, whose hooks are children of the agent that called the tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.base.ids import SessionId
from retinue.base.json import JSON
from retinue.compose.app import App
from retinue.errors import ConfigError
from retinue.session.events import (
    SandboxMode,
    ToolReturned,
    TurnEnd,
    WorkflowAgentEnd,
    WorkflowAgentStart,
    WorkflowEnd,
    WorkflowStart,
)
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import Reply, call, calls, fail, hold, text
from tests.scenarios.stock import children, log, stock

ON = "plugins.workflow={}"


def workflow(script: str, args: JSON = None) -> Reply:
    return calls(call("workflow", script=script, meta={"name": "W"}, args=args))


class Shown:
    """What became of one workflow that the root ran: the text its agent saw, and the log."""

    def __init__(self, text: str, events: list[Any], app: App, id: SessionId) -> None:
        self.text = text
        self.events = [event.data for event in events]

    def of(self, kind: type[Any]) -> list[Any]:
        return [data for data in self.events if isinstance(data, kind)]


async def run(
    script: str, folder: Path, model: ScriptedModel | None = None, *settings: str, args: JSON = None
) -> Shown:
    model = model or ScriptedModel()
    model.script("R", workflow(script, args), text("done"))
    async with stock(model, folder, ON, *settings) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        return Shown(model.requests("R")[1].results[-1], await log(app, agent.id), app, agent.id)


def answering(*names: str) -> ScriptedModel:
    """A model whose child of each name says so."""
    model = ScriptedModel()
    for name in names:
        model.script(name, text(f"I am {name}"))
    return model


async def test_a_script_computes_and_returns_json(tmp_path: Path) -> None:
    shown = await run("import json\nreturn {'a': [args['n'] + 1, meta['name']]}", tmp_path, args={"n": 1})
    assert shown.text == '{"a":[2,"W"]}\n\n[workflow: 0 agents, 0 failed]'
    assert shown.of(WorkflowStart) == [WorkflowStart(turn=1, step=1, index=0, name="W")]
    assert shown.of(WorkflowEnd) == [WorkflowEnd(turn=1, step=1, index=0, outcome="completed")]


async def test_agents_are_children_whose_words_are_the_values_in_order(tmp_path: Path) -> None:
    script = """
phase("ask")
found = await parallel([agent(f"who are you, {name}?", label=name) for name in args])
log(f"{len(found)} answers")
last = await agent("and you?", label="z")
return [*found, last]
"""
    shown = await run(script, tmp_path, answering("a", "b", "c", "z"), args=["a", "b", "c"])
    said = '["I am a","I am b","I am c","I am z"]'
    assert shown.text == f"{said}\n\n[workflow: 4 agents, 0 failed]\n== ask\n3 answers"
    starts = shown.of(WorkflowAgentStart)
    assert sorted((start.label, start.phase) for start in starts) == [(name, "ask") for name in "abcz"]
    assert {(end.id, end.outcome) for end in shown.of(WorkflowAgentEnd)} == {(s.id, "completed") for s in starts}


async def test_each_item_of_a_pipeline_goes_through_its_stages_without_waiting_for_others(tmp_path: Path) -> None:
    model, slow = ScriptedModel(), Gate()
    model.script("slow 1", hold(slow, text("S1")))
    model.script("slow 2", text("S2"))
    model.script("quick 1", text("Q1"))
    model.script("quick 2", lambda _: slow.open() or text("Q2"))
    script = """
async def first(name):
    return [name, await agent("one", label=f"{name} 1")]
return await pipeline(["slow", "quick"], first, lambda pair: agent(f"two after {pair[1]}", label=f"{pair[0]} 2"))
"""
    shown = await run(script, tmp_path, model, "plugins.workflow.concurrency=2")
    assert shown.text.startswith('["S2","Q2"]')


async def test_a_failed_child_is_none_for_the_script_and_is_named_in_the_result(tmp_path: Path) -> None:
    model = answering("good")
    model.script("bad", fail("invalid-request", "no such model"))
    script = 'return await parallel([agent("x", label="bad"), agent("y", label="good")])'
    shown = await run(script, tmp_path, model)
    assert shown.text.startswith('[null,"I am good"]\n\n[workflow: 2 agents, 1 failed]\n[failed: bad: error')
    assert sorted(end.outcome for end in shown.of(WorkflowAgentEnd)) == ["completed", "error"]


async def test_a_structured_result_is_an_object(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("c", calls(call("structured_output", score=7)))
    script = """
schema = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
return (await agent("judge", label="c", schema=schema))["score"] + 1
"""
    assert (await run(script, tmp_path, model)).text.startswith("8\n")


async def test_an_agent_file_gives_a_child_its_persona(tmp_path: Path) -> None:
    folder = tmp_path / ".retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "poet.md").write_text("---\nname: poet\ndescription: Rhymes.\n---\nYou rhyme on everything.\n")
    model = ScriptedModel()
    model.script("p", text("a rhyme"))
    shown = await run('return await agent("go", label="p", agent="poet")', tmp_path, model)
    assert shown.text.startswith("a rhyme")
    assert "You rhyme on everything." in (model.requests("p")[0].system or "")
    missing = await run('return await agent("go", label="p", agent="cook")', tmp_path / "other")
    assert "there is no agent file 'cook'; there are: none" in missing.text


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("x = 1\nreturn y", "line 2: NameError: name 'y' is not defined"),
        ("x = 1\nreturn (", "line 2: SyntaxError: '(' was never closed"),
        ('return agent("p", label="c")', "agent 'c' was never awaited"),
        ('return await agent("p")', "line 1: TypeError"),
        ("return {1, 2}", "what a workflow returns must be JSON"),
        ("def f():\n    return f()\nf()", "line 2: RecursionError"),
        ("x = 'x' * (1 << 40)", "line 1: MemoryError"),
        ("x = [0]\nwhile True:\n    x += x", "line 3: MemoryError"),
        ('await agent("p", label="c", schema={"type": "array"})', "an output schema must say `type: object`"),
        ("await parallel(range(4097))", "at most 4096 items"),
        ("open('x')", "line 1: NameError: name 'open' is not defined"),
    ],
)
async def test_an_error_of_the_script_ends_it_with_its_line(script: str, why: str, tmp_path: Path) -> None:
    shown = await run(script, tmp_path)
    assert shown.text.startswith("Error: the script failed: ")
    assert why in shown.text
    (end,) = shown.of(WorkflowEnd)
    assert end.outcome == "failed"
    (result,) = shown.of(ToolReturned)
    assert result.error.code == "WORKFLOW_FAILED"


@pytest.mark.parametrize(
    "script", ["while True: pass", "import re\nre.match('(a+)+$', 'a' * 60 + 'b')", "sum(range(10 ** 15))"]
)
@pytest.mark.exploration
async def test_a_script_that_hangs_is_cut_off(script: str, tmp_path: Path) -> None:
    shown = await run(script, tmp_path, None, "plugins.workflow.synchronous_s=0.5")
    assert "it ran for 0.5 s without calling a hook or waiting for one" in shown.text


async def test_limits_of_agents_and_of_the_result_hold(tmp_path: Path) -> None:
    model = answering("a", "b")
    script = 'for name in "abc":\n    await agent(name, label=name)'
    shown = await run(script, tmp_path, model, "plugins.workflow.max_agents=2")
    assert "it asked for more than 2 agents" in shown.text
    long = await run("return 'x' * 60000", tmp_path / "long")
    assert "x" * 50_000 in long.text
    assert "x" * 50_001 not in long.text
    assert "[cut: 60000 characters in all, 50000 are shown; return less]" in long.text
    flood = await run("while True: log('x')", tmp_path / "flood")
    assert "it logged more than 1000 lines" in flood.text


async def test_no_more_agents_work_at_once_than_are_allowed(tmp_path: Path) -> None:
    model, gates = ScriptedModel(), {name: Gate() for name in "abcd"}
    for name, gate in gates.items():
        model.script(name, hold(gate, text(name)))
    model.script("R", workflow('return await parallel([agent(n, label=n) for n in "abcd"])'), text("done"))
    async with stock(model, tmp_path, ON, "plugins.workflow.concurrency=2") as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await model.wait_requests(3)
        assert len(app.host.agents.list()) == 3
        gates["a"].open()
        await model.wait_requests(1, "c")
        assert len(app.host.agents.list()) == 3
        for gate in gates.values():
            gate.open()
        await agent.wait_idle()
        assert model.requests("R")[1].results[-1].startswith('["a","b","c","d"]')


async def test_one_abort_ends_the_script_and_all_of_its_children(tmp_path: Path) -> None:
    model = ScriptedModel()
    for name in "ab":
        model.script(name, hold(Gate(), text("never")))
    model.script("R", workflow('return await parallel([agent(n, label=n) for n in "ab"])'))
    async with stock(model, tmp_path, ON, at_rest=False) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await model.wait_requests(3)
        agent.cancel()
        await agent.wait_idle()
        assert app.host.agents.list() == (agent,)
        events = [event.data for event in await log(app, agent.id)]
        assert [data.outcome for data in events if isinstance(data, WorkflowAgentEnd)] == ["aborted", "aborted"]
        (end,) = [data for data in events if isinstance(data, WorkflowEnd)]
        (result,) = [data for data in events if isinstance(data, ToolReturned)]
        assert (end.outcome, end.detail) == ("failed", "the call was cancelled")
        assert result.error is not None
        assert "it had already made 2 agents of the workflow" in result.error.message
        for child in await children(app, agent.id):
            (last,) = [e.data for e in await log(app, child) if isinstance(e.data, TurnEnd)]
            assert (last.reason, last.cause) == ("aborted", "parent")


async def test_children_that_a_script_leaves_behind_end_with_it(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("slow", hold(Gate(), text("never")))
    model.script("quick", text("enough"))
    script = """
async def stop():
    await agent("q", label="quick")
    raise ValueError("enough")
await parallel([agent("s", label="slow"), stop()])
"""
    shown = await run(script, tmp_path, model, "plugins.workflow.concurrency=2")
    assert "line 4: ValueError: enough" in shown.text
    assert sorted(end.outcome for end in shown.of(WorkflowAgentEnd)) == ["aborted", "completed"]


async def test_depth_and_permission_hold_for_the_children(tmp_path: Path) -> None:
    shown = await run('return await agent("x", label="c")', tmp_path, None, "plugins.workflow.max_depth=0")
    assert "DEPTH_EXCEEDED" in shown.text
    model = answering("c")
    model.script("R", workflow('return await agent("x", label="c")'), text("done"))
    async with stock(model, tmp_path / "other", ON, "permission=read-only") as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        (child,) = await children(app, agent.id)
        modes = [event.data.mode for event in await log(app, child) if isinstance(event.data, SandboxMode)]
        assert modes == ["read-only"]


async def test_a_child_that_runs_a_workflow_lends_its_place_to_its_agents(tmp_path: Path) -> None:
    model = answering("x", "y")
    model.script("c", workflow('return await parallel([agent(n, label=n) for n in "xy"])'), text("both"))
    shown = await run('return await agent("nest", label="c")', tmp_path, model, "plugins.subagent.max_concurrent=1")
    assert shown.text.startswith("both")


@pytest.mark.parametrize("setting", ["concurrency=-1", "max_agents=0", "synchronous_s=0", "memory_mb=1"])
async def test_senseless_limits_are_refused(setting: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="plugins.workflow"):
        async with stock(ScriptedModel(), tmp_path, ON, f"plugins.workflow.{setting}"):
            pass
