"""`retinue doctor` and `retinue usage` beside real processes: alive, killed, and resumed."""

import json
from collections.abc import Callable

import pytest

from tests.support.command import Done, Place
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, says, session

At = Callable[[ScriptedServer], Place]

HELPER = {"tool": "subagent", "args": {"description": "a helper", "prompt": "HELPER: look", "run_in_background": False}}


def codes(done: Done) -> list[tuple[str, str]]:
    return [(finding["severity"], finding["code"]) for finding in done.objects]


def test_work_under_way_is_in_order_and_work_of_a_killed_process_says_how_to_go_on(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(HELPER), says("done")),
        session("helper", "HELPER", says("seen", hold="go"), says("seen")),
    ) as server:
        place = at(server)
        running = place.start("run", "ROOT")
        server.wait(lambda s: len(s.of("helper")) == 1)
        id = running.line().removeprefix("session ")
        alive = place.retinue("doctor")
        assert (alive.code, alive.out) == (0, "2 sessions in 1 tree: all in order\n")

        running.kill()
        dead = place.retinue("doctor", "--json")
        assert (dead.code, codes(dead)) == (0, [("warning", "WORK_LEFT"), ("note", "OWNER_FILE_LEFT")])
        finding = dead.objects[0]
        assert (finding["session_id"], finding["advice"]) == (id, f"retinue resume {id}")
        assert "work is left in 2 of its 2 sessions" in finding["text"]
        assert "the process that drove it died" in finding["text"]

        assert place.retinue(*finding["advice"].split()[1:]).code == 0
        server.check()
    after = place.retinue("doctor")
    assert (after.code, after.out) == (0, "2 sessions in 1 tree: all in order\n")


@pytest.mark.exploration
def test_the_usage_of_a_tree_is_that_of_its_run_by_agent(at: At) -> None:
    used = {"prompt_tokens": 1000, "completion_tokens": 20}
    with scripted_server(
        session("root", "ROOT", {**calls(HELPER), "usage": used}, says("done", usage=used)),
        session("helper", "HELPER", says("seen", usage={"prompt_tokens": 7, "completion_tokens": 1})),
    ) as server:
        place = at(server)
        result = place.retinue("run", "ROOT", "--output", "json").result
    id, child = result["session_id"], result["agents"][0]["id"]
    shown = json.loads(place.retinue("usage", id, "--json").out)
    assert shown["usage"] == result["usage"]
    assert [(a["id"], a["parent_id"], a["label"]) for a in shown["agents"]] == [
        (id, None, None),
        (child, id, "a helper"),
    ]
    assert [a["usage"]["input_tokens"] for a in shown["agents"]] == [2000, 7]
    lines = place.retinue("usage", id).out.splitlines()
    assert lines[0].split() == ["requests", "input", "cached", "output", "cost", "agent"]
    assert [line.split()[:4] for line in lines[1:]] == [
        ["2", "2000", "0", "40"],
        ["1", "7", "0", "1"],
        ["3", "2007", "0", "41"],
    ]
    assert json.loads(place.retinue("usage", child, "--json").out)["usage"]["requests"] == 1
