"""`retinue scenario`: what it prints, its exit codes, and a recording that replays without its server."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.support.command import KEY, Done
from tests.support.scripted_server import scripted_server
from tests.support.scripts import calls, says, session
from tests.testing.scenario.sets import change, copied

Retinue = Callable[..., Done]


def test_run_tells_of_each_scenario_and_what_differs(retinue: Retinue, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    path = copied(folder, "subagent-multi", "subagent-spawn")
    done = retinue("scenario", "run", str(folder))
    assert (done.code, done.out, done.err) == (0, "ok      subagent-spawn\nok      subagent-multi\n", "")

    change(path / "stdout.expected", "12 ropes", "14 ropes")
    done = retinue("scenario", "run", str(path))
    assert (done.code, done.err) == (1, "")
    assert done.out == (
        "FAIL    subagent-multi\n        stdout.expected: … ropes and sails are there?↵[-14-]{+12+} ropes, 3 sails.↵\n"
    )


def test_refresh_says_what_it_changed(retinue: Retinue, tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-spawn")
    (path / "stdout.expected").unlink()
    assert retinue("scenario", "refresh", str(path)).out == "changed subagent-spawn\n        stdout.expected\n"
    assert retinue("scenario", "refresh", str(path)).out == "same    subagent-spawn\n"


def test_a_folder_without_scenarios_and_a_form_that_does_not_hold_are_usage_errors(
    retinue: Retinue, tmp_path: Path
) -> None:
    done = retinue("scenario", "run", str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert "there is no scenario.yaml in" in done.err
    path = copied(tmp_path, "subagent-spawn")
    change(path / "scenario.yaml", "about:", "abut:")
    done = retinue("scenario", "run", str(path))
    assert done.code == 2
    assert "unknown field `abut`" in done.err


def _recordable(path: Path, *, pins: Sequence[int] = (1,)) -> Path:
    form = {
        "about": "A child is started in the background and messaged once more.",
        "header": {"name": "recorded", "pins": True},
        "config": {"plugins": dict.fromkeys(("output", "tasks", "shell")), "retry": {"first_delay_s": 0.01}},
        "steps": [{"prompt": "ROOT-1: look at the list."}],
        "pins_child_system_prompts": list(pins),
        "pins_child_tool_schemas": list(pins),
    }
    path.mkdir()
    (path / "files").mkdir()
    (path / "files" / "list.txt").write_text("sweep, polish\n")
    (path / "scenario.yaml").write_bytes(msgspec.yaml.encode(form))
    return path


def test_what_a_real_server_said_is_replayed_without_it(
    retinue: Retinue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _recordable(tmp_path / "recorded")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    child = {"description": "look", "prompt": "CHILD-A: read the list.", "run_in_background": True}
    again = {"subagent_id": "{{re:(agent-[0-9a-f]{24})}}", "message": "And now?"}
    with scripted_server(
        session(
            "root",
            "ROOT-1",
            {"fail": 503},
            calls({"tool": "subagent", "args": child}, reasoning="One is enough."),
            says("It looks.", open=["looked"]),
            calls({"tool": "send_message", "args": again}, text=f"My key is {KEY}."),
            says("It was asked.", open=["asked"]),
            says("It is all done."),
        ),
        session(
            "child",
            "CHILD-A",
            calls({"tool": "read", "args": {"path": "{{re:(list\\.txt)|read the list}}"}}, hold="looked"),
            says("Sweep and polish."),
            says("Nothing more.", hold="asked"),
        ),
    ) as server:
        done = retinue(
            "scenario", "record", "--model", "openai-compatible:scripted", "--base-url", server.url, str(path)
        )
    assert (done.code, done.err) == (0, "")
    recorded = (path / "scripts.yaml").read_text()
    assert done.out.splitlines()[:2] == ["changed recorded", "        scripts.yaml"]
    assert "fromRequest" in recorded
    assert "<secret>" in recorded
    assert "thought: One is enough." in recorded
    for file in path.rglob("*.*"):
        if file.is_file():
            assert KEY not in file.read_text()
            assert str(tmp_path) not in file.read_text()
    assert retinue("scenario", "run", str(path)).out == "ok      recorded\n"


def test_siblings_that_are_called_the_same_are_told_apart_by_their_prompts(retinue: Retinue, tmp_path: Path) -> None:
    path = _recordable(tmp_path / "recorded", pins=())
    ropes, sails = (
        {"tool": "subagent_fork", "args": {"description": "count", "prompt": f"CHILD: {what} (in the hold)"}}
        for what in ("ropes", "sails")
    )
    with scripted_server(
        session("ropes", r"CHILD: ropes", says("12 ropes.")),
        session("sails", r"CHILD: sails", says("3 sails.")),
        session("root", "ROOT-1", calls(ropes, sails), says("12 and 3.")),
    ) as server:
        done = retinue(
            "scenario", "record", "--model", "openai-compatible:scripted", "--base-url", server.url, str(path)
        )
    assert (done.code, done.err) == (0, "")
    assert r"prompt: \ACHILD:\ ropes\ \(in\ the\ hold\)" in (path / "scripts.yaml").read_text()
    assert retinue("scenario", "run", str(path)).out == "ok      recorded\n"


def test_a_recording_does_not_replace_scripts_that_somebody_wrote(retinue: Retinue, tmp_path: Path) -> None:
    path = copied(tmp_path, "subagent-spawn")
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    done = retinue("scenario", "record", "--model", "ollama:none", str(path))
    assert done.code == 2
    assert "has scripts; remove them" in done.err
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_a_recording_that_cannot_be_made_leaves_the_scenario_as_it_is(retinue: Retinue, tmp_path: Path) -> None:
    path = _recordable(tmp_path / "recorded")
    done = retinue("scenario", "record", str(path))
    assert done.code == 2
    shutil.rmtree(path / "files")
    assert [file.name for file in path.iterdir()] == ["scenario.yaml"]
