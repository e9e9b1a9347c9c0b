"""Which files a scenario may and must have, and that what it pins about requests is declared."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from retinue.errors import ConfigError
from retinue.testing.scenario.suite import refresh
from tests.testing.scenario.sets import change, copied, problems, small


async def test_a_scenario_that_came_to_what_it_expects_has_no_problem(tmp_path: Path) -> None:
    assert await problems(copied(tmp_path, "subagent-helper")) == ""


async def test_an_orphan_file_fails(tmp_path: Path) -> None:
    path = await small(tmp_path)
    (path / "notes.txt").write_text("left here")
    assert await problems(path) == "notes.txt is an orphan: nothing here reads it"


async def test_a_log_of_a_session_that_there_was_not_fails(tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-spawn")
    shutil.copy(path / "session.1.jsonl", path / "session.2.jsonl")
    assert await problems(path) == "session.2.jsonl is an orphan: there were 2 sessions"


async def test_a_gap_in_the_numbers_of_logs_fails(tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-multi", "subagent-spawn")
    (path / "session.1.jsonl").unlink()
    assert "session.1.jsonl is missing, and session.2.jsonl is there: the numbers have a gap" in await problems(path)


@pytest.mark.parametrize("name", ["stdout.expected", "session.jsonl", "request-header.expected.json"])
async def test_an_expected_file_that_is_missing_fails(tmp_path: Path, name: str) -> None:
    path = await small(tmp_path)
    (path / name).unlink()
    assert f"{name} is missing" in await problems(path)


# Pins. The child `helper` of this scenario sees less than its class: case C34.

_PROMPT = "system-prompt.2.expected.md"
_TOOLS = "tool-schemas.2.expected.json"


@pytest.mark.parametrize("name", [_PROMPT, _TOOLS])
async def test_a_declared_sidecar_that_is_missing_fails(tmp_path: Path, name: str) -> None:
    path = copied(tmp_path, "subagent-helper")
    (path / name).unlink()
    assert await problems(path) == f"{name} is missing: it is declared; refresh writes it"


@pytest.mark.parametrize("name", [_PROMPT, _TOOLS])
async def test_a_sidecar_that_is_equal_to_the_class_pin_fails(tmp_path: Path, name: str) -> None:
    path = copied(tmp_path, "subagent-helper")
    shutil.copy(path / name.replace(".2.", "."), path / name)
    assert await problems(path) == (f"{name} is equal to the pin of the class: it must differ, or not be declared")


@pytest.mark.parametrize("name", [_PROMPT, _TOOLS])
async def test_an_empty_sidecar_fails(tmp_path: Path, name: str) -> None:
    path = copied(tmp_path, "subagent-helper")
    (path / name).write_text("\n")
    assert f"{name} is empty" in await problems(path)


async def test_a_sidecar_that_is_not_declared_fails(tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-spawn")
    (path / "system-prompt.1.expected.md").write_text("You are a child.\n")
    assert await problems(path) == (
        "system-prompt.1.expected.md is there and pins_child_system_prompts does not name 1: declare it, or remove the "
        "file"
    )


async def test_the_pin_of_a_class_in_a_scenario_that_does_not_pin_it_fails(tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-multi", "subagent-spawn")
    shutil.copy(tmp_path / "subagent-spawn" / "system-prompt.expected.md", path)
    assert "system-prompt.expected.md is an orphan: this scenario does not pin the class" in await problems(path)


@pytest.mark.parametrize("key", ["pins_child_system_prompts", "pins_child_tool_schemas"])
async def test_a_child_with_a_header_of_its_own_must_declare_it(tmp_path: Path, key: str) -> None:
    path = copied(tmp_path, "subagent-helper")
    change(path / "scenario.yaml", f"{key}: [1, 2]", f"{key}: [1]")
    found = await problems(path)
    assert "session.2 (helper): its " in found
    assert f"is not that of the class 'two-ways'; declare it in {key}: " in found


async def test_a_child_with_the_header_of_its_class_may_not_declare_another(tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-spawn")
    change(path / "scenario.yaml", "steps:", "pins_child_tool_schemas: [1]\nsteps:")
    assert "session.1 (look it up): its tools is equal to that of the class 'foreground'" in await problems(path)


async def test_a_declaration_for_nobody_fails(tmp_path: Path) -> None:
    path = await small(tmp_path, pins_child_system_prompts=[1])
    assert "pins_child_system_prompts names 1, and no session of that number made a request" in await problems(path)


async def test_two_scenarios_that_pin_one_class_both_fail(tmp_path: Path) -> None:
    first, second = await small(tmp_path, "first"), await small(tmp_path, "second", refreshed=False)
    for path in (first, second):
        assert await problems(path) == "the class 'small' is pinned by first and by second; leave it to one"


async def test_a_class_that_nobody_pins_fails(tmp_path: Path) -> None:
    path = await small(tmp_path, header={"name": "small"}, refreshed=False)
    assert await problems(path) == "the class 'small' is pinned by no scenario of the set"


async def test_a_scenario_whose_root_is_not_of_its_class_fails(tmp_path: Path) -> None:
    await small(tmp_path, "pinning")
    path = await small(tmp_path, "other", header={"name": "small"}, config={"bundle": "agent-core"}, refreshed=False)
    assert "session (root): its system prompt is not that of the class 'small': " in await problems(path)


_LEARNING = {
    "tools": ["tests.testing.scenario.growing:learn"],
    "steps": [{"prompt": "Sing."}],
    "scripts": [
        {"label": "root", "replies": [{"calls": [{"tool": "learn"}]}, {"calls": [{"tool": "sing"}]}, "Heave ho."]}
    ],
}


async def test_a_header_that_changes_in_the_middle_must_be_declared(tmp_path: Path) -> None:
    path = await small(tmp_path, refreshed=False, **_LEARNING)
    assert await problems(path) == "session (root): its header changed 1 times; header_changes says 0"


async def test_a_declared_change_of_the_header_is_in_the_log_in_full(tmp_path: Path) -> None:
    path = await small(tmp_path, **_LEARNING, header_changes={0: 1})
    assert await problems(path) == ""
    assert '"description":"Sing a shanty."' in (path / "session.jsonl").read_text()


async def test_a_change_of_the_header_that_did_not_come_fails(tmp_path: Path) -> None:
    path = await small(tmp_path, header_changes={0: 1}, refreshed=False)
    assert await problems(path) == "session (root): its header changed 0 times; header_changes says 1"


async def test_a_refresh_of_an_unchanged_set_changes_nothing(tmp_path: Path) -> None:
    first = copied(tmp_path, "subagent-helper", "subagent-report", "subagent-continuable", "cancel", "subagent-spawn")
    for path in sorted(first.parent.glob("*/")):
        assert await refresh(path) == await refresh(path)
        assert (await refresh(path)).changed == []
        assert (await refresh(path)).problems == []


async def test_a_refresh_removes_what_nothing_expects_any_more(tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-spawn")
    shutil.copy(path / "session.1.jsonl", path / "session.2.jsonl")
    assert (await refresh(path)).changed == ["session.2.jsonl"]
    assert await problems(path) == ""


async def test_a_refresh_does_not_bless_what_breaks_a_rule(tmp_path: Path) -> None:
    path = await small(tmp_path)
    before = {file.name: file.read_text() for file in path.iterdir()}
    change(path / "scenario.yaml", "Good morning.", "Good evening.\n  - Good night.")
    done = await refresh(path)
    assert "was never asked for" in "\n".join(done.problems)
    assert {f.name: f.read_text() for f in path.iterdir()} == before | {
        "scenario.yaml": (path / "scenario.yaml").read_text()
    }


# Forms


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("about:", "abut:", "unknown field `abut`"),
        ("- prompt:", "- prompts:", "unknown field `prompts` - at `$.steps[0]`"),
        ("label: root", "lable: root", "unknown field `lable` - at `$.scripts[0]`"),
        ("- prompt: Hello.", "- {prompt: Hello., cancel: root}", "step 1 must do exactly one of prompt, send"),
        ("- prompt: Hello.", "- {mode: steer}", "step 1 must do exactly one of prompt, send"),
        ("- prompt: Hello.", "- wait: {count: 2}", "step 1 must wait for exactly one of turn_start"),
        ("label: root", "prompt: x\n  label: root", "script 1 must name its session by label or by prompt"),
        ("config:", "config_file: a.yaml\nconfig:", "give config or config_file, not both"),
        ("plugins:", "plugin:", "there is no option 'plugin'"),
        ("about:", "tools: [nowhere:x]\nabout:", "the tool 'nowhere:x' cannot be imported"),
    ],
)
async def test_what_a_form_cannot_say_is_refused_with_its_place(
    tmp_path: Path, before: str, after: str, said: str
) -> None:
    path = await small(tmp_path)
    change(path / "scenario.yaml", before, after)
    with pytest.raises(ConfigError) as refused:
        await problems(path)
    assert said in str(refused.value)


async def test_scripts_stand_in_one_file(tmp_path: Path) -> None:
    path = await small(tmp_path)
    (path / "scripts.yaml").write_text("- {label: root, replies: [Hello.]}\n")
    with pytest.raises(ConfigError, match="scripts stand twice"):
        await problems(path)
