"""`retinue why` against what a server really received: after a run, beside one, and without a key or the network."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from retinue.base.ids import SessionId
from retinue.session.events import StepStart
from tests.support.command import Place
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, says, session

At = Callable[[ScriptedServer], Place]

GLOB = {"tool": "glob", "args": {"pattern": "*"}}
HELPER = {"tool": "subagent", "args": {"description": "a helper", "prompt": "HELPER: look", "run_in_background": False}}


def steps(place: Place, id: str) -> list[int]:
    return [event.seq for event in place.log(id) if isinstance(event.data, StepStart)]


def test_every_request_of_a_run_and_of_its_child_is_identical_and_is_what_the_server_got(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", {"fail": 500}, calls(GLOB), calls(HELPER), says("done")),
        session("helper", "HELPER", calls(GLOB), says("seen")),
    ) as server:
        place = at(server)
        done = place.retinue("run", "ROOT", "--output", "json", "--set", "model_options.temperature=0.25")
        server.check()
        root, child = done.result["session_id"], done.result["agents"][0]["id"]
        got = {name: [r.body for r in server.of(name) if r.outcome == "answered"] for name in ("root", "helper")}
    for id, name in ((root, "root"), (child, "helper")):
        seqs = steps(place, id)
        assert len(seqs) == len(got[name])
        for seq, body in zip(seqs, got[name], strict=True):
            shown = place.retinue("why", id, str(seq), "--show")
            assert (shown.code, json.loads(shown.out)) == (0, body)
            assert shown.err.startswith("identical  ")
    newest = place.retinue("why", root)
    assert newest.out == place.retinue("why", root, str(steps(place, root)[-1])).out
    place.variables.clear()
    found = place.retinue("why", root, str(seqs[0]), "--json")
    assert (found.code, found.objects[0]["verdict"]) == (0, "identical")


@pytest.mark.exploration
def test_a_request_that_is_being_answered_is_made_again_beside_its_process(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("done", hold="go"))) as server:
        place = at(server)
        running = place.start("run", "ROOT")
        server.wait(lambda s: len(s.of("root")) == 1)
        id = running.line().removeprefix("session ")
        (seq,) = steps(place, id)
        found = place.retinue("why", id, str(seq), "--json", "--show")
        server.open("go")
        assert running.done().code == 0
    (shown,) = found.objects
    assert (found.code, shown["verdict"], shown["fate"], shown["sent"]) == (1, "unknown", "open", None)
    assert shown["body"] == server.of("root")[0].body
    assert place.retinue("why", id, str(seq)).code == 0


def test_nothing_that_speaks_to_a_network_is_loaded(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("done"))) as server:
        place = at(server)
        id = place.retinue("run", "ROOT", "--output", "json").result["session_id"]
    code = (
        "import sys; from retinue.cli.group import run_command; code = run_command(sys.argv[1:])\n"
        "heavy = {'aiohttp', 'httpx', 'retinue.model.adapters.transport', 'retinue.compose.build',\n"
        "         'retinue.agent.agent', 'retinue.host.host'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "why", id, str(steps(place, SessionId(id))[0])],
        env=place.environment(),
        cwd=place.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("identical  ")
    assert done.stderr == "[]\n"


def test_an_event_outside_every_step_is_a_mistake_of_the_caller(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("done"))) as server:
        place = at(server)
        id = place.retinue("run", "ROOT", "--output", "json").result["session_id"]
    done = place.retinue("why", id, "0")
    assert (done.code, done.out) == (2, "")
    assert "belongs to no step" in done.err
