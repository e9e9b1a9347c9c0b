"""Agents from files: what is read, what they are offered as, and what their children have."""

import logging
from pathlib import Path

import pytest

import retinue
from retinue.plugins.agents import AgentsConfig, find_agents
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, text

REVIEWER = """---
name: Code Reviewer
description: Reviews a change and finds what is wrong with it.
tools: Read, Grep, Bash(git diff:*), NotHere
model: sonnet
color: red
maxDepth: 1
---

You review. Keep {{braces}} and ${{ secrets }} as they are.
"""


def put(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_a_file_of_another_program_is_understood(tmp_path: Path) -> None:
    put(tmp_path / ".claude" / "agents" / "code-reviewer.md", REVIEWER)
    (file,) = find_agents(tmp_path, {}, AgentsConfig()).values()
    assert (file.tool_name, file.tools, file.max_depth) == (
        "agent_code_reviewer",
        ("read", "grep", "bash", "NotHere"),
        1,
    )
    assert file.options.model is None
    found = file.tool_filter({"read", "grep", "bash", "write"})
    assert found is not None
    assert found.allow == ("read", "grep", "bash")


def test_a_model_is_named_with_or_without_its_provider(tmp_path: Path) -> None:
    head = "---\ndescription: d\nmodel: {}\nmax_tokens: 7\n---\np\n"
    put(tmp_path / ".retinue" / "agents" / "a.md", head.format("deepseek:deepseek-reasoner"))
    put(tmp_path / ".retinue" / "agents" / "b.md", head.format("small-model"))
    a, b = find_agents(tmp_path, {}, AgentsConfig()).values()
    assert (a.options.provider, a.options.model, a.options.max_tokens) == ("deepseek", "deepseek-reasoner", 7)
    assert (b.options.provider, b.options.model) == (None, "small-model")


def test_the_closest_file_of_a_name_wins(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    inner = project / "inner"
    inner.mkdir()
    head = "---\ndescription: {}\n---\np\n"
    put(tmp_path / ".config" / "retinue" / "agents" / "x.md", head.format("user"))
    put(project / ".agents" / "agents" / "x.md", head.format("project"))
    put(inner / ".claude" / "agents" / "x.md", head.format("inner"))
    environ = {"HOME": str(tmp_path)}
    assert [file.description for file in find_agents(inner, environ, AgentsConfig()).values()] == ["inner"]
    assert [file.description for file in find_agents(project, environ, AgentsConfig()).values()] == ["project"]
    assert [file.description for file in find_agents(tmp_path, environ, AgentsConfig()).values()] == ["user"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("---\nname: x\n---\ntext\n", "description"),
        ("---\ndescription: d\n---\n\n", "who the agent is"),
        ("---\ndescription: d\nname: ' - '\n---\np\n", "name"),
        ("---\ndescription: d\nmax_tokens: many\n---\np\n", "max_tokens"),
        ("---\ndescription: d\ntools: 3\n---\np\n", "tools"),
    ],
)
def test_a_broken_file_is_left_out_and_the_warning_says_why(
    tmp_path: Path, content: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = put(tmp_path / ".retinue" / "agents" / "bad.md", content)
    with caplog.at_level(logging.WARNING, "retinue"):
        assert find_agents(tmp_path, {}, AgentsConfig()) == {}
    assert str(path) in caplog.text
    assert words in caplog.text


async def test_a_child_of_a_file_has_its_persona_its_tools_and_its_depth(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    put(project / ".retinue" / "agents" / "code-reviewer.md", REVIEWER)
    put(project / ".retinue" / "skills" / "s" / "SKILL.md", "---\nname: s\ndescription: d\n---\ntext\n")
    model = ScriptedModel(
        calls(call("agent_code_reviewer", description="review it", prompt="Look.", run_in_background=False)),
        text("all done"),
    )
    model.script("review it", text("fine"))
    async with retinue.open("scripted:m", client=model, cwd=project, home=tmp_path / "home", environ={}) as app:
        result = await (await app.run("Go.")).result()
    assert result.outcome == "completed"
    root, child = model.requests()[:2]
    spec = next(tool for tool in root.tools if tool.name == "agent_code_reviewer")
    assert spec.description.startswith("Reviews a change and finds what is wrong with it.")
    assert "`agent_code_reviewer`" in root.system
    assert child.system.startswith("You review. Keep {{braces}} and ${{ secrets }} as they are.")
    assert child.tool_names == ("bash", "grep", "read")
    assert "agent_code_reviewer" not in child.system
    assert "- s: d" in root.system
    assert "- s: d" not in child.system
    model.check()


async def test_without_files_nothing_is_offered(tmp_path: Path) -> None:
    model = ScriptedModel(text("hi"))
    async with retinue.open("scripted:m", client=model, cwd=tmp_path, home=tmp_path / "home", environ={}) as app:
        await (await app.run("Go.")).result()
    assert not [name for name in model.requests()[0].tool_names if name.startswith("agent_")]


async def test_a_file_may_name_another_provider_that_has_no_key_here(tmp_path: Path) -> None:
    project = tmp_path / "project"
    put(project / ".retinue" / "agents" / "far.md", "---\ndescription: d\nmodel: openai:gpt-5\n---\np\n")
    model = ScriptedModel(
        calls(call("agent_far", description="far", prompt="Look.", run_in_background=False)), text("done")
    )
    async with retinue.open("scripted:m", client=model, cwd=project, home=tmp_path / "home", environ={}) as app:
        result = await (await app.run("Go.")).result()
    assert result.outcome == "completed"
    (told,) = model.requests()[1].results
    assert "no model provider 'openai' here" in told


async def test_without_delegation_files_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path / ".retinue" / "agents" / "x.md", "---\ndescription: d\n---\np\n")
    model = ScriptedModel(text("hi"))
    settings = ["plugins.subagent=null", "plugins.report=null"]
    async with retinue.open(
        "scripted:m", client=model, cwd=tmp_path, home=tmp_path / "home", settings=settings, environ={}
    ) as app:
        await (await app.run("Go.")).result()
    assert not [name for name in model.requests()[0].tool_names if "agent" in name]


CONTROLS = {"send_message", "interrupt_agent", "list_agents"}


@pytest.mark.parametrize(
    ("settings", "are_there"),
    [
        ((), True),
        (("plugins.subagent.background_mode=one-shot",), True),
        (("plugins.subagent.enable_run_in_background=false",), True),
        (("plugins.subagent.background_mode=one-shot", "plugins.agents.background_mode=one-shot"), False),
        (("plugins.subagent.background_mode=one-shot", "plugins.agents.enable_run_in_background=false"), False),
    ],
)
async def test_whoever_may_have_children_that_take_messages_can_message_them(
    settings: tuple[str, ...], are_there: bool, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    put(project / ".retinue" / "agents" / "far.md", "---\ndescription: d\n---\np\n")
    started = calls(call("agent_far", description="far", prompt="Look."))
    again = calls(call("send_message", subagent_id=lambda seen: seen.find(r'from="([^"]+)"'), message="And there?"))
    whole = [started, text("waiting"), again, text("waiting"), text("done")]
    model = ScriptedModel(*(whole if are_there else [text("alone")]))
    model.script("far", *([text("nothing"), text("something")] if are_there else []))
    async with retinue.open(
        "scripted:m", client=model, cwd=project, home=tmp_path / "home", settings=settings, environ={}
    ) as app:
        result = await (await app.run("Go.")).result()
    assert CONTROLS.intersection(model.requests()[0].tool_names) == (CONTROLS if are_there else set())
    assert result.output == ("done" if are_there else "alone")
    model.check()
