"""Children in the background: `run` waits for them, stops them, or leaves them for `resume`."""

import signal
from collections.abc import Callable

import pytest

from tests.support.command import Place
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, says, session

At = Callable[[ScriptedServer], Place]

CONTINUABLE = ("--set", "plugins.subagent.background_mode=continuable", "--output", "json")
START = {"tool": "subagent", "args": {"description": "a helper", "prompt": "HELPER: look", "run_in_background": True}}


def test_the_run_waits_for_the_child_and_for_the_turn_that_its_notice_opens(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(START), says("started"), says("it found {{re:gold in (\\w+)}}", open=["end"])),
        session("helper", "HELPER", says("gold in alaska", hold="go")),
    ) as server:
        running = at(server).start("run", "ROOT", *CONTINUABLE)
        server.wait(lambda s: len(s.of("root")) == 2 and s.of("root")[1].outcome == "answered")
        server.open("go")
        done = running.done()
        server.check()
    assert (done.code, done.result["output"], done.result["abandoned"]) == (0, "it found alaska", [])
    place = at(server)
    place.check()
    shown = place.retinue("log", done.result["agents"][0]["id"]).out.splitlines()
    assert "activation 1" in shown
    assert shown[-1] == "activation 1 settled: completed"


def test_on_finish_stop_ends_the_children_and_lists_them(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(START), says("started")), session("helper", "HELPER", says("x", hold="never"))
    ) as server:
        done = at(server).retinue("run", "ROOT", "--on-finish", "stop", *CONTINUABLE)
    (child,) = [agent["id"] for agent in done.result["agents"]]
    assert (done.code, done.result["outcome"], done.result["stopped"]) == (0, "completed", [child])
    assert done.result["abandoned"] == []


@pytest.mark.exploration
def test_what_works_when_the_wait_ends_is_abandoned_and_goes_on_after_resume(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(START), says("started"), says("it said {{re:(yes)}}")),
        session("helper", "HELPER", says("x", hold="never"), says("yes")),
    ) as server:
        place = at(server)
        done = place.retinue("run", "ROOT", "--drain-timeout", "0.3", *CONTINUABLE)
        (child,) = [agent["id"] for agent in done.result["agents"]]
        assert (done.code, done.result["outcome"], done.result["abandoned"]) == (3, "completed", [child])

        again = place.retinue("resume", done.result["session_id"], *CONTINUABLE)
        assert (again.code, again.result["output"]) == (0, "it said yes")
        server.check()
    place.check()


def test_a_signal_leaves_the_children_as_they_are(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(START), says("started"), says("it said {{re:(yes)}}")),
        session("helper", "HELPER", says("x", hold="never"), says("yes")),
    ) as server:
        place = at(server)
        running = place.start("run", "ROOT", *CONTINUABLE)
        server.wait(lambda s: len(s.of("root")) == 2 and s.of("root")[1].outcome == "answered" and bool(s.of("helper")))
        running.signal(signal.SIGINT)
        done = running.done()
        assert (done.code, len(done.result["abandoned"])) == (130, 1)

        again = place.retinue("resume", done.result["session_id"], *CONTINUABLE)
        assert (again.code, again.result["output"]) == (0, "it said yes")
        server.check()
    place.check()


def test_the_run_waits_for_tasks_too(at: At) -> None:
    fork = {"description": "a copy", "prompt": "COPY: look", "run_in_background": True}
    with scripted_server(
        session("copy", "COPY", says("seen by the copy", hold="go")),
        session("root", "ROOT", calls({"tool": "subagent_fork", "args": fork}), says("started"), says("told")),
    ) as server:
        running = at(server).start("run", "ROOT", "--output", "json")
        server.wait(lambda s: len(s.of("root")) == 2 and s.of("root")[1].outcome == "answered")
        server.open("go")
        done = running.done()
        server.check()
    assert (done.code, done.result["output"], done.result["abandoned"]) == (0, "told", [])
    at(server).check()


def test_a_child_that_waits_for_its_own_is_nowhere_completed(at: At) -> None:
    below = {"tool": "subagent", "args": {"description": "below", "prompt": "BELOW: look", "run_in_background": True}}
    with scripted_server(
        session("root", "ROOT", calls(START), says("started")),
        session("helper", "HELPER", calls(below), says("I wait")),
        session("below", "BELOW", says("x", hold="never")),
    ) as server:
        place = at(server)
        running = place.start("run", "ROOT", *CONTINUABLE)
        server.wait(lambda s: len(s.of("helper")) == 2 and bool(s.of("below")))
        server.wait(lambda s: all(s.of(n)[1].outcome == "answered" for n in ("root", "helper")))
        running.signal(signal.SIGINT)
        done = running.done()
    assert {agent["outcome"] for agent in done.result["agents"]} == {None}
    assert len(done.result["abandoned"]) == 2
    assert [line for line in done.err.splitlines() if line.startswith("completed")] == []
    assert len([line for line in done.err.splitlines() if line.startswith("started")]) == 2
    root = done.result["session_id"]
    assert [o["state"] for o in place.retinue("tree", root, "--json").objects] == ["waiting", "waiting", "open"]
    assert "waiting" in place.retinue("sessions").out
    assert "waiting" in place.retinue("log", root).out.splitlines()[0]
