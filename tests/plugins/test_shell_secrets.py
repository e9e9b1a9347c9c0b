"""Keys do not get into results and files, however the output comes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.base.json import JSONObject
from retinue.model.content import Text, text_of
from retinue.plugins.shell.buffer import OutputBuffer
from retinue.plugins.shell.process import start_command
from retinue.plugins.shell.running_groups import RunningGroups
from retinue.tools.secrets import ByteMask, Secrets, redact_result
from retinue.tools.tool import ToolResult

KEY = "sk-SECRETKEY-987654321"


def test_a_key_is_masked_wherever_the_pieces_are_cut() -> None:
    data = f"a {KEY} b {KEY[:9]} c".encode()
    for cut in range(len(data)):
        mask = ByteMask(Secrets((KEY,)))
        got = mask.feed(data[:cut]) + mask.feed(data[cut:]) + mask.end()
        assert got == f"a [secret] b {KEY[:9]} c".encode()


def test_a_result_shows_no_key() -> None:
    facts: JSONObject = {"lines": [f"a {KEY}", 1], KEY: {"deep": f"{KEY}{KEY}"}, "count": 2}
    told = ToolResult(content=(Text(f"x{KEY}y"),), value=facts, meta={"out": facts}, context=(f"see {KEY}",))
    masked: JSONObject = {"lines": ["a [secret]", 1], "[secret]": {"deep": "[secret][secret]"}, "count": 2}
    shown = redact_result(told, Secrets((KEY,)))
    assert (text_of(shown.content), shown.context) == ("x[secret]y", ("see [secret]",))
    assert (shown.value, shown.meta) == (masked, {"out": masked})


def test_a_result_that_holds_a_key_in_its_facts_alone_shows_none_either() -> None:
    assert redact_result(ToolResult.text("fine", value=[KEY], meta={"x": KEY}), Secrets((KEY,))) == ToolResult.text(
        "fine", value=["[secret]"], meta={"x": "[secret]"}
    )
    untouched = ToolResult.text("fine", value=["x"])
    assert redact_result(untouched, Secrets((KEY,))) is untouched


async def test_no_key_of_a_command_gets_into_its_file(tmp_path: Path) -> None:
    output = OutputBuffer(tmp_path / "spill/x.txt", Secrets((KEY,)))
    line = f"for i in {{1..9000}}; do echo {KEY}; done; printf %s {KEY}"
    run = await start_command(("bash", "-c", line), cwd=tmp_path, env=dict(os.environ), output=output)
    await run.finish()
    assert "[secret]" in output.text()
    assert "SECRETKEY" not in output.text()
    kept = (tmp_path / "spill/x.txt").read_text()
    assert kept == "[secret]\n" * 9000 + "[secret]"


_OWNER = """
import anyio, os, sys
from pathlib import Path
from retinue.plugins.shell.buffer import OutputBuffer
from retinue.plugins.shell.process import start_command
from retinue.plugins.shell.running_groups import RunningGroups
async def main():
    here = Path(sys.argv[1])
    run = await start_command(("sh", "-c", sys.argv[2]), cwd=here,
                              env=dict(os.environ), output=OutputBuffer(), running=RunningGroups(here / "running"))
    print(run.pid, flush=True)
    await anyio.sleep_forever()
anyio.run(main)
"""


@pytest.mark.exploration
@pytest.mark.skipif(sys.platform != "linux", reason="rests on /proc")
def test_what_a_killed_process_left_running_is_ended_and_nothing_else(tmp_path: Path) -> None:
    command = "trap '' TERM; sleep 600 & wait; sleep 600"
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, str(tmp_path), command], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    group = int(owner.stdout.readline())
    note = tmp_path / "running" / str(group)
    running = RunningGroups(tmp_path / "running")
    try:
        assert note.stat().st_mode & 0o777 == 0o600
        running.reap()
        assert note.exists(), "its owner lives"
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        whole = note.read_text()
        pid, started, *rest = whole.split()
        note.write_text(" ".join([pid, str(int(started) + 1), *rest]))
        running.reap()
        assert not note.exists()
        assert is_running(group), "another process that has the number by now"
        note.write_text(whole)
        running.reap()
        assert not note.exists()
        until = time.monotonic() + 5
        while is_running(group) and time.monotonic() < until:
            time.sleep(0.02)
        assert not is_running(group)
    finally:
        if is_running(group):
            os.killpg(group, signal.SIGKILL)
        owner.kill()
        owner.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="rests on /proc")
@pytest.mark.exploration
def test_what_the_leader_of_a_group_left_is_ended_too_but_never_a_group_of_somebody_else(tmp_path: Path) -> None:
    command = "sleep 600 & echo $! > member; while [ ! -e go ]; do sleep 0.01; done"
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, str(tmp_path), command], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    group = int(owner.stdout.readline())
    note, member = tmp_path / "running" / str(group), 0
    running = RunningGroups(tmp_path / "running")
    try:
        wait_until(lambda: (tmp_path / "member").exists() and (tmp_path / "member").read_text().endswith("\n"))
        member = int((tmp_path / "member").read_text())
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        (tmp_path / "go").touch()
        wait_until(lambda: not is_running(group))
        assert is_running(member)

        whole = note.read_text()
        pid, started, owned_by, owner_started = whole.split()
        note.write_text(f"{pid} {started} {owned_by} {int(owner_started) + 1}")
        running.reap()
        assert not note.exists()
        assert is_running(member), "another owner's group that has the number by now"
        note.write_text(whole)
        running.reap()
        assert not note.exists()
        wait_until(lambda: not is_running(member))
    finally:
        if member and is_running(member):
            os.killpg(group, signal.SIGKILL)
        owner.kill()
        owner.stdout.close()


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until, "never held"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
