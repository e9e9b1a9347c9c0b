"""Interrupting: in order with the first signal, at once with the second."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.session.events import TurnEnd
from tests.support.command import Place
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, delegate, says, session

At = Callable[[ScriptedServer], Place]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_tree_in_order_and_resume_goes_on(at: At, number: int, code: int) -> None:
    with scripted_server(
        session("root", "ROOT", calls(delegate("QUICK"), delegate("SLOW")), says("finished after all")),
        session("quick", "QUICK", says("quick")),
        session("slow", "SLOW", says("slow", hold="never")),
    ) as server:
        place = at(server)
        running = place.start("run", "ROOT", "--output", "json")
        server.wait(lambda s: bool(s.of("quick")) and s.of("quick")[0].outcome == "answered" and bool(s.of("slow")))
        running.signal(number)
        done = running.done()

        root = done.result["session_id"]
        assert (done.code, done.result["outcome"]) == (code, "aborted")
        assert f"go on with: retinue resume {root}" in done.err
        assert "Traceback" not in done.err
        ends = {id: [e.data for e in log if isinstance(e.data, TurnEnd)] for id, (log, _) in place.stored().items()}
        assert [(end.reason, end.cause) for end in ends[next(iter(ends))]] == [("aborted", "user")]
        assert sorted(end.reason for turns in ends.values() for end in turns) == ["aborted", "aborted", "completed"]
        place.check()

        again = place.retinue("resume", root[:12])
        assert (again.code, again.out) == (0, "finished after all\n")
        server.check()
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
    until = time.monotonic() + 15
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.001)
