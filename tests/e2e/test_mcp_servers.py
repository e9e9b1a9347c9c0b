"""The command with an MCP server that stays when its input ends: our process is killed, and the next one ends it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.base.groups import lives
from tests.support.command import Place
from tests.support.scripted_server import ScriptedServer, scripted_server
from tests.support.scripts import calls, says, session

SERVER = Path(__file__).parents[1] / "plugins" / "mcp_servers" / "rude.py"

At = Callable[[ScriptedServer], Place]


def configure(place: Place, *args: object) -> None:
    """The folder's configuration has the server `rude`, and nothing else that looks for what was left."""
    said = ", ".join(map(str, (SERVER, *args)))
    (place.folder / "retinue.yaml").write_text(
        "plugins:\n  shell: false\n  mcp:\n    mcp_servers:\n"
        f"      rude: {{command: {sys.executable}, args: [{said}]}}\n"
    )


def wait_pid(path: Path) -> int:
    """What the server wrote down when it was called."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if path.exists() and path.read_text().endswith("\n"):
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError("the server was not called")


@pytest.mark.exploration
def test_a_server_that_outlives_a_kill_is_ended_by_the_next_start(at: At, tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    call = {"tool": "mcp__rude__good", "args": {}}
    with scripted_server(session("root", "ROOT", calls(call), says("Gone on."))) as server:
        place = at(server)
        configure(place, "stays", noted)
        running = place.start("run", "ROOT", "--config", "retinue.yaml", "--output", "json")
        left = wait_pid(noted)
        running.kill()
        assert lives(left)
        configure(place, "plain")
        (root,) = (str(id) for id in place.stored())
        done = place.start("resume", root, "--config", "retinue.yaml", "--output", "json").done()
        server.check()
    assert done.result["output"] == "Gone on."
    assert not lives(left)
    assert not list((place.home / "running").iterdir())
    place.check()
