"""Questions as people read them, and what their answers mean."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.base.ids import SessionId
from retinue.cli.headless.asking import described, parse_answer
from retinue.host.approvals import Answer, Question


def question(**more: Any) -> Question:
    fields: dict[str, Any] = {
        "id": "approval-1",
        "root": SessionId("session-1"),
        "agent": SessionId("agent-1"),
        "label": "C",
        "path": ("R", "C"),
        "tool": "bash",
        "arguments": {"command": "git push"},
        "about": "git push",
        "rule": "bash(git push*)",
    }
    return Question(**{**fields, **more})


def test_a_question_says_who_wants_what_because_of_which_rule() -> None:
    first, about, last = described(question(), more=2).split("\n")
    assert first == "? R > C (agent-1) wants to call bash (2 more wait)"
    assert about == "    git push"
    assert "whatever the rule bash(git push*) asks this agent" in last


def test_without_something_that_it_acts_on_the_arguments_are_shown() -> None:
    shown = described(question(tool="mcp__x__y", about=None, arguments={"a": 1, "b": "two"}))
    assert "    a: 1, b: two\n" in shown


def test_nothing_of_a_question_reaches_the_terminal_as_a_command() -> None:
    shown = described(
        question(about="ls \x1b[2J\x1b]0;title\x07\r\nrm x\x9b1A", path=("\x1b[31mR", "C\nD"), tool="b\x1bx")
    )
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert "\r" not in shown
    assert "? R > C D (" in shown
    assert "    ls \n    rm x\n" in shown


def test_a_long_command_is_shown_in_part_and_says_so() -> None:
    shown = described(question(about="\n".join(["x" * 1000] * 30)))
    assert "… 10 more lines" in shown
    assert max(map(len, shown.split("\n"))) < 500


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y\n", Answer(verb="allow")),
        (" YES \n", Answer(verb="allow")),
        ("a\n", Answer(verb="allow", always=True)),
        ("n\n", Answer(verb="reject")),
        ("\n", None),
        ("\x1b[A\n", None),
        ("use the other branch\n", Answer(verb="reject", words="use the other branch")),
    ],
)
def test_what_an_answer_means(line: str, answer: Answer | None) -> None:
    assert parse_answer(line) == answer
