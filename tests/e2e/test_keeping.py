"""Trees that are kept, moved and removed while agents work on them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.command import Place
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, delegate, says, session

At = Callable[[ScriptedServer], Place]


def test_a_tree_that_was_cut_off_goes_on_in_another_home(at: At) -> None:
    with scripted_server(
        session("root", "ROOT", calls(delegate("DONE"), delegate("CUT")), says("{{re:(first)}} {{re:(second)}}")),
        session("ended", "DONE", says("first")),
        session("cut", "CUT", says("second", hold="never", optional=True), says("second")),
    ) as server:
        place = at(server)
        running = place.start("run", "ROOT")
        root = running.line().removeprefix("session ")
        server.wait_requests(cut=1, ended=1)
        while sum(event.type == "tool/result" for event in place.log(root)) < 1:
            pass
        exported = place.retinue("export", root, "tree.jsonl")
        assert exported.code == 0, exported.err
        running.kill()

        there = replace(place, variables={**place.variables, "RETINUE_HOME": str(place.root / "there")})
        imported = there.retinue("import", "tree.jsonl")
        assert (imported.code, f"it owes work: retinue resume {root}" in imported.out) == (0, True)
        done = there.retinue("resume", root, "--output", "json")
        assert (done.code, done.result["output"]) == (0, "first second")
        assert [len(server.of(name)) for name in ("root", "ended", "cut")] == [2, 1, 2]
        server.check()


@pytest.mark.exploration
def test_a_tree_at_work_is_copied_but_never_pruned(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("mine", hold="go"))) as server:
        place = at(server)
        running = place.start("run", "ROOT")
        root = running.line().removeprefix("session ")
        server.wait_requests(root=1)
        by_id = place.retinue("prune", root, "--yes", "--force")
        by_age = place.retinue("prune", "--older-than", "0", "--yes")
        backed_up = place.retinue("backup", "copy.db")
        server.open("go")
        first = running.done()
        copy = f"sqlite:///{place.folder / 'copy.db'}"
        going_on = place.retinue("log", root, "--store", copy)
        server.check()

    assert (by_id.code, "SESSION_HELD" in by_id.err, "owes work" in by_id.out) == (1, True, True)
    assert (by_age.code, by_age.out) == (0, "")
    assert "1 more owe work and stay" in by_age.err
    assert (first.code, first.out) == (0, "mine\n")
    assert (backed_up.code, going_on.code, "turn 1 is open" in going_on.out) == (0, 0, True)
    place.check()
    assert place.retinue("prune", root, "--yes").code == 0
    assert place.stored() == {}


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed here")
def test_a_home_on_a_disk_that_cannot_be_written_can_be_looked_at(at: At) -> None:
    with scripted_server(session("root", "ROOT", says("done"))) as server:
        place = at(server)
        assert place.retinue("run", "ROOT").out == "done\n"
    fixed = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--", sys.executable, "-m", "retinue", "sessions"]
    shown = subprocess.run(fixed, env=place.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "session-" in shown.stdout
    assert [path.name for path in place.home.iterdir() if path.is_file()] == ["retinue.db"]
