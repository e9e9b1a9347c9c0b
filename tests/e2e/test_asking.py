"""Calls that need an approval, on the command line: at a terminal, without one, and over the end of a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.support.command import Place
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, delegate, says, session
from tests.support.terminal import at_terminal

At = Callable[[ScriptedServer], Place]

RULE = ("--set", "plugins.permissions.rules.ask=['bash(echo *)']")
FULL = ("--permission", "full-access")
"""No sandbox: what is installed here makes no difference."""


def touch(name: str) -> dict[str, Any]:
    return {"tool": "bash", "args": {"command": f"echo once >> {name}"}}


def test_two_children_and_their_parent_ask_at_the_terminal(at: At) -> None:
    with scripted_server(
        session(
            "root", "ROOT", calls(delegate("ONE"), delegate("TWO")), calls(touch("c")), calls(touch("d")), says("ok")
        ),
        session("one", "ONE", calls(touch("a")), calls(touch("a")), calls(touch("a")), says("one is done")),
        session("two", "TWO", calls(touch("b")), says("two is done")),
    ) as server:
        place = at(server)
        with at_terminal(place, "run", "ROOT", *RULE, *FULL) as screen:
            seen = screen.until("wants to call bash")
            is_one_first = "> child ONE" in seen  # in the question; the live tree above it names both
            screen.until("echo once >> ")
            screen.until("or words for the agent")
            screen.type("a\n" if is_one_first else "not now\n")
            screen.until("wants to call bash")
            screen.until("or words for the agent")
            screen.type("not now\n" if is_one_first else "a\n")
            screen.until("echo once >> c")
            screen.until("or words for the agent")
            screen.type("\n")
            screen.until("please answer y, a or n")
            screen.type("y\n")
            screen.until("echo once >> d")
            screen.until("or words for the agent")
            screen.type("n\n")
            done = screen.done()
        server.check()
    assert (done.code, done.out) == (0, "ok\n"), screen.shown
    assert {path.name: path.read_text() for path in place.folder.iterdir()} == {"a": "once\n" * 3, "c": "once\n"}
    place.check()


def test_an_interrupted_question_is_asked_again_and_its_call_runs_once(at: At) -> None:
    with scripted_server(session("root", "ROOT", calls(touch("a")), says("ok"))) as server:
        place = at(server)
        with at_terminal(place, "run", "ROOT", *RULE, *FULL) as screen:
            screen.until("or words for the agent")
            screen.type("\x03")
            done = screen.done()
        assert done.code == 130, screen.shown
        assert not (place.folder / "a").exists()
        id = next(iter(place.stored()))
        with at_terminal(place, "resume", id, *RULE, *FULL) as screen:
            screen.until("or words for the agent")
            screen.type("y\n")
            done = screen.done()
        server.check()
    assert (done.code, done.out) == (0, "ok\n"), screen.shown
    assert (place.folder / "a").read_text() == "once\n"
    types = [event.type for event in place.log(id)]
    assert types.count("approval/asked") == types.count("approval/decided") == types.count("tool/start") == 1
    place.check()


def test_without_a_terminal_the_answer_is_no_unless_it_was_said_to_be_yes(at: At) -> None:
    answered = [session(name, name, calls(touch(name)), says("ok")) for name in ("DEFAULT", "REJECT", "ALLOW", "SET")]
    with scripted_server(*answered) as server:
        place = at(server)
        policy = "plugins.permissions.when_nobody_answers=allow"
        done = [
            place.retinue("run", "DEFAULT", *RULE, *FULL),
            place.retinue("run", "REJECT", *RULE, *FULL, "--ask", "reject", "--set", policy),
            place.retinue("run", "ALLOW", *RULE, *FULL, "--ask", "allow"),
            place.retinue("run", "SET", *RULE, *FULL, "--set", policy),
        ]
        server.check()
    assert [one.code for one in done] == [0, 0, 0, 0]
    assert sorted(path.name for path in place.folder.iterdir()) == ["ALLOW", "SET"]
    assert "retinue: bash was rejected: it needs an approval" in done[0].err
    shown = place.retinue("log", done[0].session).out
    assert "asked: may bash run? (rule bash(echo *))" in shown
    assert "rejected by the policy" in shown
    refused = place.retinue("run", "DEFAULT", "--ask", "terminal")
    assert refused.code == 2
    assert "--ask terminal needs a terminal" in refused.err


def test_a_bad_rule_is_said_before_anything_runs(place: Place) -> None:
    done = replace(place, url="http://127.0.0.1:9").retinue(
        "run", "X", "--set", "plugins.permissions.rules.deny=['bash(']"
    )
    assert done.code == 2
    assert "plugins.permissions.rules.deny: 'bash(' is no rule" in done.err
