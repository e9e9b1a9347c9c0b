"""The command with an external agent: its program and our process are killed, and nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.base.groups import lives
from retinue.session.events import ActivationEnd
from tests.support.command import Place
from tests.support.external import AGENT
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, says, session

At = Callable[[ScriptedServer], Place]


def configure(place: Place, state: Path) -> None:
    """The folder's configuration has the agent `ext`."""
    state.mkdir()
    (place.folder / "retinue.yaml").write_text(
        "plugins:\n  acp:\n    agents:\n      ext:\n"
        f"        command: {sys.executable}\n        args: [-S, {AGENT}]\n        env: {{ACP_STATE: {state}}}\n"
    )


def wait_note(state: Path, what: str, count: int) -> int:
    """As in tests/support/external.py, for tests that are not async."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        lines = (state / "notes").read_text().splitlines() if (state / "notes").exists() else []
        found = [line.partition(" ")[0] for line in lines if line.partition(" ")[2] == what]
        if len(found) >= count:
            return int(found[count - 1])
        time.sleep(0.02)
    raise AssertionError(f"no program wrote {what!r} for the {count}. time")


def test_kill_of_our_process_and_then_of_the_program_settles_once(at: At, tmp_path: Path) -> None:
    state = tmp_path / "state"
    delegation = {"tool": "agent_ext", "args": {"description": "job", "prompt": "do: hang"}}
    with scripted_server(session("root", "ROOT", calls(delegation), says("Started."), says("It broke."))) as server:
        place = at(server)
        configure(place, state)
        running = place.start("run", "ROOT", "--config", "retinue.yaml", "--output", "json")
        first = wait_note(state, "hanging", 1)
        server.wait(lambda s: len(s.of("root")) == 2 and s.of("root")[-1].outcome == "answered")
        running.kill()
        root, child = (str(id) for id in place.stored())
        resumed = place.start("resume", root, "--config", "retinue.yaml", "--output", "json")
        second = wait_note(state, "hanging", 2)
        assert not lives(first)
        os.kill(second, signal.SIGKILL)
        done = resumed.done()
        server.check()
    assert done.result["output"] == "It broke."
    ends = [event.data for event in place.log(child) if isinstance(event.data, ActivationEnd)]
    assert [end.outcome for end in ends] == ["error"]
    assert "session/load" in (state / "notes").read_text()
    place.check()


def test_calls_that_a_program_makes_by_itself_are_in_the_stream_and_not_in_the_log(at: At, tmp_path: Path) -> None:
    state = tmp_path / "state"
    args = {"description": "job", "prompt": "do: work", "run_in_background": False}
    with scripted_server(session("root", "ROOT", calls({"tool": "agent_ext", "args": args}), says("Found."))) as server:
        place = at(server)
        configure(place, state)
        done = place.start("run", "ROOT", "--config", "retinue.yaml", "--output", "jsonl").done()
        server.check()
    shown = [each for each in done.objects if each["type"] == "external-call"]
    (child,) = (str(id) for id in place.stored() if str(id) != done.result["session_id"])
    assert [each["session_id"] for each in shown] == [child] * 2
    call = {"turn": 1, "step": 1, "id": "t1", "title": "Read it", "kind": "read"}
    assert [each["call"] for each in shown] == [{**call, "status": "pending"}, {**call, "status": "completed"}]
    assert "Read it" not in str(place.log(child))
    place.check()


def nested(place: Place, url: str) -> None:
    """The folder's configuration has Retinue itself as an external agent, which finds the same configuration."""
    model = f"--model, openai-compatible:scripted, --base-url, {url}, --home, {place.home}"
    (place.folder / "retinue.yaml").write_text(
        "plugins:\n  acp:\n    agents:\n      retinue:\n"
        f"        command: {sys.executable}\n        args: [-m, retinue, acp, {model}]\n"
        f"        env: {{PYTHONPATH: '{os.environ.get('PYTHONPATH', '')}'}}\n"
    )


def hand_down(task: str) -> dict[str, object]:
    args = {"description": task.lower(), "prompt": f"{task}: look", "run_in_background": False}
    return {"tool": "agent_retinue", "args": args}


@pytest.mark.exploration
def test_retinue_works_three_levels_deep_below_itself(at: At) -> None:
    """The fourth level is refused: depth is counted over all the processes."""
    with scripted_server(
        session("root", "ROOT", calls(hand_down("FIRST")), says("root: {{re:(1: .*)}}")),
        session("first", "FIRST", calls(hand_down("SECOND")), says("1: {{re:(2: .*)}}")),
        session("second", "SECOND", calls(hand_down("THIRD")), says("2: {{re:(3: .*)}}")),
        session("third", "THIRD", calls(hand_down("FOURTH")), says("3: {{re:(depth 4)}}")),
    ) as server:
        place = at(server)
        nested(place, server.url)
        done = place.start("run", "ROOT", "--output", "json").done()
        server.check()
    assert done.result["output"] == "root: 1: 2: 3: depth 4"
    place.check()


@pytest.mark.exploration
def test_a_nested_retinue_answers_when_everybody_below_it_is_done(at: At) -> None:
    background = {"tool": "subagent", "args": {"description": "kid", "prompt": "KID: look", "run_in_background": True}}
    with scripted_server(
        session("root", "ROOT", calls(hand_down("FIRST")), says("root: {{re:(kid says .*)}}")),
        session("first", "FIRST", calls(background), says("Started."), says("{{re:(kid says .*)}}")),
        session("kid", "KID", says("kid says hello")),
    ) as server:
        place = at(server)
        nested(place, server.url)
        done = place.start("run", "ROOT", "--output", "json").done()
        server.check()
    assert done.result["output"] == "root: kid says hello"
    place.check()


@pytest.mark.exploration
def test_a_nested_retinue_takes_a_message_after_a_restart_of_both(at: At) -> None:
    with scripted_server(
        session(
            "root",
            "ROOT",
            calls({"tool": "agent_retinue", "args": {"description": "kid", "prompt": "KID: look"}}),
            says("Started."),
            says("It said it."),
            calls(
                {"tool": "send_message", "args": {"subagent_id": "{{re:(agent-[0-9a-f]{24})}}", "message": "and more"}}
            ),
            says("Sent."),
            says("It said more."),
        ),
        session("kid", "KID", says("seen"), says("seen more")),
    ) as server:
        place = at(server)
        nested(place, server.url)
        first = place.start("run", "ROOT", "--output", "json").done()
        assert first.result["output"] == "It said it."
        second = place.start("resume", first.result["session_id"], "again", "--output", "json").done()
        server.check()
    assert second.result["output"] == "It said more."
    place.check()
