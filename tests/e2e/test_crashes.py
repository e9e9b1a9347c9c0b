"""A process that dies in the middle: what it left can be read, and resume goes on where it was."""

import time
from collections.abc import Callable

import pytest

from tests.support.command import Place
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, delegate, says, session

At = Callable[[ScriptedServer], Place]


def test_children_that_had_ended_are_not_run_again(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(delegate("DONE"), delegate("CUT")), says("{{re:(first)}} {{re:(second)}}")),
        session("ended", "DONE", says("first")),
        session("cut", "CUT", says("second", hold="never", optional=True), says("second")),
    ) as server:
        place = at(server)
        running = place.start("run", "ROOT")
        root = running.line().removeprefix("session ")
        server.wait_requests(cut=1)
        _wait_until(lambda: _results(place, root) == 1)
        running.kill()

        place.check(quiescent=False)
        log = place.retinue("log", root)
        assert (log.code, "turn 1 is open" in log.out) == (0, True)
        assert "result subagent" in log.out
        done = place.retinue("resume", root, "--output", "json")

        assert (done.code, done.result["outcome"], done.result["output"]) == (0, "completed", "first second")
        assert [len(server.of(name)) for name in ("root", "ended", "cut")] == [2, 1, 2]
        server.check()
    place.check()


def test_a_command_that_ran_when_the_process_died_is_not_repeated_blindly(at: At) -> None:
    command = "echo x >> runs; while kill -0 $PPID; do sleep 0.05; done"
    with scripted_server(
        session("root", "ROOT", calls(delegate("CHILD")), says("so be it")),
        session("child", "CHILD", calls({"tool": "bash", "args": {"command": command}}), says("I looked instead")),
    ) as server:
        place = at(server)
        running = place.start("run", "ROOT")
        root = running.line().removeprefix("session ")
        _wait_until((place.folder / "runs").exists)
        running.kill()
        place.check(quiescent=False)
        done = place.retinue("resume", root)

        assert (done.code, done.out) == (0, "so be it\n")
        told = server.of("child")[1].messages
        assert any("process ended" in str(message["content"]) for message in told if message["role"] == "tool")
        assert (place.folder / "runs").read_text() == "x\n"
        server.check()
    place.check()


def test_a_session_that_another_process_drives_is_refused(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("mine", hold="go"))) as server:
        place = at(server)
        running = place.start("run", "ROOT")
        root = running.line().removeprefix("session ")
        server.wait_requests(root=1)
        refused = place.retinue("resume", root, "me too", "--output", "json")
        assert place.retinue("sessions").out.split()[0] == root
        server.open("go")
        first = running.done()
        server.check()

    assert (refused.code, refused.result["error"]["code"]) == (1, "SESSION_HELD")
    assert (first.code, first.out) == (0, "mine\n")
    place.check()


@pytest.mark.exploration
def test_the_same_key_sends_once(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("one"), says("two"))) as server:
        place = at(server)
        root = place.retinue("run", "ROOT").session
        first = place.retinue("resume", root, "go on", "--key", "k1")
        again = place.retinue("resume", root, "go on", "--key", "k1")
        other = place.retinue("resume", root, "something else", "--key", "k1", "--output", "json")
        server.check()

    assert [(d.code, d.out) for d in (first, again)] == [(0, "two\n"), (0, "two\n")]
    assert (other.code, other.result["error"]["code"]) == (2, "ID_CONFLICT")
    place.check()


@pytest.mark.exploration
def test_resume_without_a_text_leaves_a_completed_session_alone(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(delegate("CHILD")), says("one")), session("child", "CHILD", says("c"))
    ) as server:
        place = at(server)
        root = place.retinue("run", "ROOT").session
        child = next(id for id in place.stored() if id != root)
        again = place.retinue("resume", root)
        of_child = place.retinue("resume", child)
        server.check()

    assert (again.code, again.out) == (0, "one\n")
    assert (of_child.code, "resume its root instead" in of_child.err) == (2, True)
    assert not of_child.err.startswith("session ")  # which would say that something begins


def _results(place: Place, root: str) -> int:
    return sum(event.type == "tool/result" for event in place.log(root))


def _wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < until, "never held"
        time.sleep(0.01)
