"""The command with an external agent: its program and our process are killed, and nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

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
