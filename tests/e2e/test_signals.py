"""Interrupting: in order with the first signal, at once with the second."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.model.content import UserMessage
from retinue.session.folds import CONTEXT_PLUGIN
from tests.support.command import Place
from tests.support.processes import runs
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, delegate, says, session

At = Callable[[ScriptedServer], Place]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.exploration),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.exploration),
    ],
)
def test_a_signal_closes_nothing_and_resume_goes_on_in_every_open_turn(at: At, number: int, code: int) -> None:
    with scripted_server(
        session("root", "ROOT", calls(delegate("QUICK"), delegate("SLOW")), says("{{re:(quick)}} and {{re:(slow)}}")),
        session("quick", "QUICK", says("quick")),
        session("slow", "SLOW", says("x", hold="never"), says("slow")),
    ) as server:
        place = at(server)
        running = place.start("run", "ROOT", "--output", "json")
        server.wait(lambda s: bool(s.of("quick")) and s.of("quick")[0].outcome == "answered" and bool(s.of("slow")))
        root = running.line().removeprefix("session ")
        _until(lambda: _count(place, root, "tool/result") == 1)
        running.signal(number)
        done = running.done()

        assert (done.code, done.result["outcome"]) == (code, "aborted")
        assert done.result["error"]["code"] == "INTERRUPTED"
        assert f"go on with: retinue resume {root}" in done.result["error"]["message"]
        assert done.err.count(f"go on with: retinue resume {root}") == 1
        assert "Traceback" not in done.err
        slow = next(id for id, (log, _) in place.stored().items() if log[-1].type != "turn/end" and id != root)
        assert done.result["abandoned"] == [slow]
        assert sorted(agent["outcome"] or "" for agent in done.result["agents"]) == ["", "completed"]
        assert [sum(e.type == "turn/end" for e in log) for log, _ in place.stored().values()].count(0) == 2
        place.check(quiescent=False)

        again = place.retinue("resume", root[:12])
        assert (again.code, again.out) == (0, "quick and slow\n")
        assert [len(server.of(name)) for name in ("root", "quick", "slow")] == [2, 1, 2]
        server.check()
    assert [e.type for e in place.log(root) if e.type in ("turn/start", "turn/resumed", "turn/end")] == [
        "turn/start",
        "turn/resumed",
        "turn/end",
    ]
    assert "runtime" not in _sources(place, root), "nothing of unknown outcome, so no note"
    place.check()


def test_a_command_that_a_signal_cuts_off_is_gone_and_its_outcome_unknown(at: At) -> None:
    mark = os.urandom(8).hex()
    command = {"tool": "bash", "args": {"command": f"bash -c 'echo > pid; sleep 600; touch done; :' {mark}"}}
    with scripted_server(session("root", "ROOT", calls(command), says("I look again"))) as server:
        place = at(server)
        running = place.start("run", "ROOT", "--output", "jsonl")
        root = running.line().removeprefix("session ")
        _wait_for(place.folder / "pid")
        assert runs(mark)
        running.signal(signal.SIGINT)
        done = running.done()
        assert (done.code, done.result["outcome"]) == (130, "aborted")
        assert not runs(mark)
        assert [event.type for event in place.log(root)][-1] == "tool/start"

        again = place.retinue("resume", root)
        assert (again.code, again.out) == (0, "I look again\n")
        told = server.of("root")[1].messages
        assert any("it may have had its effect" in str(message["content"]) for message in told)
        assert any("Their effect is unknown" in str(message["content"]) for message in told)
        server.check()
    place.check()


def test_the_owner_of_a_command_in_the_background_is_told_that_it_ended_with_the_process(at: At) -> None:
    mark = os.urandom(8).hex()
    words = f"bash -c 'echo > pid; sleep 600; :' {mark}"
    command = {"tool": "bash", "args": {"command": words, "run_in_background": True}}
    with scripted_server(session("root", "ROOT", calls(command), says("it runs"), says("so it ended"))) as server:
        place = at(server)
        running = place.start("run", "ROOT", "--output", "json")
        root = running.line().removeprefix("session ")
        _wait_for(place.folder / "pid")
        assert runs(mark)
        _until(lambda: _count(place, root, "turn/end") == 1)
        running.signal(signal.SIGTERM)
        done = running.done()
        assert (done.code, done.result["outcome"], done.result["abandoned"]) == (143, "completed", ["bash-1"])
        assert done.result["error"]["code"] == "INTERRUPTED"
        assert not runs(mark)

        assert [place.retinue("resume", root).out for _ in range(2)] == ["so it ended\n", "so it ended\n"]
    assert _sources(place, root).count("plugin") == 1
    place.check()


@pytest.mark.parametrize("children", [pytest.param(20), pytest.param(100, marks=pytest.mark.exploration)])
def test_many_children_do_not_keep_the_process_from_ending(at: At, children: int) -> None:
    names = [f"CHILD{n:03d}" for n in range(children)]
    with scripted_server(
        session("root", "ROOT", calls(*map(delegate, names)), says("all of them")),
        *[session(name, name, says("x", hold="never", optional=True), says("y", optional=True)) for name in names],
    ) as server:
        place = at(server)
        running = place.start("run", "ROOT", "--output", "json")
        server.wait(lambda s: all(s.of(name) for name in names))
        since = time.monotonic()
        running.signal(signal.SIGINT)
        done = running.done()
        took_s = time.monotonic() - since
        assert (done.code, len(done.result["abandoned"])) == (130, children)
        print(f"{children} children: {took_s:.2f} s from the signal to the exit")
        assert took_s < 5

        again = place.retinue("resume", done.result["session_id"])
        assert (again.code, again.out) == (0, "all of them\n")
    place.check()


def test_the_second_signal_ends_the_process_at_once(at: At) -> None:
    stubborn = "trap '' TERM INT; touch started; while kill -0 $PPID; do sleep 0.05; done"
    with scripted_server(
        session("root", "ROOT", calls({"tool": "bash", "args": {"command": stubborn}}), says("x", optional=True))
    ) as server:
        place = at(server)
        running = place.start("run", "ROOT", "--output", "json")
        server.wait(lambda s: bool(s.of("root")) and s.of("root")[0].outcome == "answered")
        _wait_for(place.folder / "started")
        assert running.line().startswith("session ")
        running.signal(signal.SIGINT)
        while not running.line().startswith("stopping"):
            pass
        running.signal(signal.SIGINT)
        done = running.done()
    assert (done.code, done.result["outcome"]) == (130, "aborted")
    assert "turn/end" not in [event.type for event in place.log(done.result["session_id"])]
    place.check(quiescent=False)


@pytest.mark.parametrize("reached", [".", "home", "home/retinue.db", "home/retinue.db-wal"])
def test_a_signal_during_start_up_leaves_nothing_half_done(at: At, reached: str) -> None:
    with scripted_server(session("root", "ROOT", says("x", hold="never", optional=True))) as server:
        place = at(server)
        running = place.start("run", "ROOT", "--output", "json")
        _wait_for(place.root / reached)
        running.signal(signal.SIGTERM)
        done = running.done()
    # Until the interpreter has loaded us, the system's own answer counts.
    assert done.code in ((143,) if reached != "." else (143, -signal.SIGTERM))
    assert "Traceback" not in done.err
    if done.code == 143:
        assert done.result["outcome"] == "aborted"
    if (place.home / "retinue.db").exists():
        place.check(quiescent=False)


def _wait_for(path: Path) -> None:
    _until(path.exists)


def _until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < until, "never held"
        time.sleep(0.001)


def _count(place: Place, session: str, type: str) -> int:
    return sum(event.type == type for event in place.log(session))


def _sources(place: Place, session: str) -> list[str]:
    """Who said what the session read, but for the runtime's account of what holds."""
    read = [event.data for event in place.log(session) if isinstance(event.data, UserMessage)]
    return [said.source.kind for said in read if said.source.plugin != CONTEXT_PLUGIN]
