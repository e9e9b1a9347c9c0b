"""Every example runs to its end against a scripted server, as somebody would start it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import fits
from tests.house.checkout import ROOT
from tests.support.scripted_server import scripted_server
from tests.support.scripts import calls, says, session

_EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def _call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


def _delegate(label: str, prompt: str) -> dict[str, Any]:
    return _call("subagent", description=label, prompt=prompt)


CASES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "run_and_stream": (
        [session("root", r"\AWhat is in this folder\?", says("Two logs."))],
        "Two logs.\ncompleted: 1 requests, look at it with: retinue log session-…",
    ),
    "own_tool": (
        [
            session(
                "root",
                r"\AThe Petrel",
                calls(_call("moor", ship="Petrel", berth="quay 1")),
                calls(_call("berths")),
                calls(_call("moor", ship="Petrel", berth="quay 2")),
                says("{{re:(Petrel lies at quay \\d)}}"),
            )
        ],
        "Petrel lies at quay 2\n{'quay 1': 'Seagull', 'quay 2': 'Petrel'}",
    ),
    "watch_children": (
        [
            session(
                "root",
                r"\ALet one agent",
                calls(_delegate("count the files", "FILES")),
                says("one is at work", open=["count"]),
                calls(_delegate("count the notes", "NOTES")),
                says("the other one is at work", open=["note"]),
                says("{{re:(\\d+ files)}} and {{re:(\\d+ notes)}}"),
            ),
            session("files", r"\AFILES", says("12 files", hold="count")),
            session("notes", r"\ANOTES", says("3 notes", hold="note")),
        ],
        "started count the files\ncompleted: 12 files\nstarted count the notes\ncompleted: 3 notes\n"
        "12 files and 3 notes\n"
        "count the files: continuable, completed, 1 requests\ncount the notes: continuable, completed, 1 requests",
    ),
    "structured_result": (
        [
            session(
                "child",
                r"\ARead monday\.log",
                calls(_call("structured_output", machine="crane")),
                calls(_call("structured_output", machine="crane", count=3)),
            )
        ],
        "completed {'machine': 'crane', 'count': 3}",
    ),
    "drive_child": (
        [
            session("reader", r"\ARead monday\.log", says("a pump"), says("a crane")),
            session(
                "parent",
                r"\A\[notice\] Agent \S+ \(reader\)",
                says("noted"),
                says("noted again"),
                says("{{re:(a pump)}} and {{re:(a crane)}}"),
            ),
        ],
        "accepted session-…\nfirst: a pump\nsecond: a crane\na pump and a crane",
    ),
}
"""For each example the conversations of its model, and what it prints."""


@pytest.mark.parametrize(
    "name",
    sorted(CASES),
)
def test_the_example_runs(name: str, tmp_path: Path, variables: dict[str, str]) -> None:
    sessions, shown = CASES[name]
    with scripted_server(*sessions) as server:
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / f"{name}.py"],
            cwd=tmp_path,
            env={**variables, "RETINUE_MODEL": "openai-compatible:scripted", "RETINUE_BASE_URL": server.url},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    server.check()
    assert fits(shown, done.stdout), done.stdout


def test_every_example_is_run_and_says_what_it_shows() -> None:
    assert [path.stem for path in _EXAMPLES] == sorted(CASES)
    assert [path.name for path in _EXAMPLES if not path.read_text().startswith('"""')] == []
