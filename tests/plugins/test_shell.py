"""Running real commands: output, ends, environment, and that nothing is left behind."""

import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.errors import BadInput, ConfigError
from retinue.model.content import text_of
from retinue.plugins.permissions import Permissions, Preset
from retinue.plugins.shell import sections, shell_tools
from retinue.plugins.shell.buffer import OutputBuffer
from retinue.plugins.shell.environment import command_environment
from retinue.plugins.shell.process import start_command
from tests.plugins.calls import ToolBox


@pytest.fixture
def box(tmp_path: Path) -> ToolBox:
    return _box(tmp_path)


def _box(
    tmp_path: Path, preset: Preset = "full-access", *, timeout_s: float = 120, max_timeout_s: float = 600
) -> ToolBox:
    cwd = tmp_path / "project"
    cwd.mkdir(exist_ok=True)
    tools = shell_tools(Permissions(preset), spill=tmp_path / "spill", timeout_s=timeout_s, max_timeout_s=max_timeout_s)
    return ToolBox(tools, cwd)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def _wait(holds: Callable[[], bool]) -> None:
    """Other processes set no event here, so their state is asked for."""
    with anyio.fail_after(20):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(0.01)


def _pids(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()] if path.exists() else []


# --- results ---


async def test_both_outputs_come_in_order(box: ToolBox) -> None:
    result = await box.call("bash", command="echo one; echo two >&2; echo three; pwd")
    assert text_of(result.content) == f"one\ntwo\nthree\n{box.caller.cwd}"
    assert result.value == {"exit_code": 0, "output_bytes": 15 + len(str(box.caller.cwd)), "timed_out": False}


async def test_a_failing_command_is_an_answer_with_its_exit_code(box: ToolBox) -> None:
    result = await box.call("bash", command="echo no; exit 3", description="fail")
    assert (text_of(result.content), result.is_error) == ("no\n[exit code: 3]", False)
    assert result.meta["description"] == "fail"
    assert await box.text("bash", command="true") == "(no output)"
    assert await box.text("bash", command="kill -KILL $$") == "(no output)\n[ended by signal SIGKILL]"
    assert "[exit code: 127]" in await box.text("bash", command="no-such-command-here")


async def test_there_is_no_input_and_no_terminal(box: ToolBox) -> None:
    assert await box.text("bash", command="cat; test -t 0 || echo none; echo $TERM") == "none\ndumb"


async def test_output_that_is_long_is_cut_and_kept(box: ToolBox, tmp_path: Path) -> None:
    text = await box.text("bash", command="seq 1 100000")
    path = tmp_path / "spill/session-a/1-0.txt"
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("\n99999\n100000")
    assert len(text) < 32_000
    assert f"Full text: {path}" in text
    assert path.read_text() == "".join(f"{n}\n" for n in range(1, 100_001))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_output_without_end_is_bounded_in_memory(tmp_path: Path) -> None:
    box = _box(tmp_path, timeout_s=1)
    result = await box.call("bash", command="yes")
    assert result.code == "TIMEOUT"
    assert len(text_of(result.content)) < 32_000
    assert (tmp_path / "spill/session-a/1-0.txt").stat().st_size <= 64 * 1024 * 1024


async def test_binary_output_and_escape_sequences_are_not_shown(box: ToolBox) -> None:
    assert "binary output" in await box.text("bash", command="head -c 1000 /dev/urandom; printf '\\0'")
    assert (
        await box.text("bash", command=r"printf '\033[31mred\033[0m\n10%%\r50%%\r100%%\r\nend\r\n'") == "red\n100%\nend"
    )


async def test_a_command_that_cannot_be_started_is_refused(box: ToolBox, tmp_path: Path) -> None:
    assert (await box.refusal("bash", command="echo \0")).name == "NOT_STARTED"
    assert (await box.refusal("bash", command="x" * 3_000_000)).name == "NOT_STARTED"
    assert (await box.refusal("bash", command="")).name == "INVALID_ARGS"
    box.caller.cwd.rmdir()
    assert (await box.refusal("bash", command="true")).name == "NOT_STARTED"


async def test_read_only_refuses_commands(tmp_path: Path) -> None:
    box = _box(tmp_path, "read-only")
    refusal = await box.refusal("bash", command="touch x")
    assert (refusal.name, "'read-only'" in str(refusal)) == ("PERMISSION_DENIED", True)
    assert list(box.caller.cwd.iterdir()) == []


async def test_no_descriptor_stays_open(box: ToolBox) -> None:
    await box.call("bash", command="true")
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await box.call("bash", command="seq 1 20000")
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_a_command_sees_no_foreign_descriptor(box: ToolBox, tmp_path: Path) -> None:
    with open(tmp_path / "open", "w"):
        assert (await box.text("bash", command="ls /proc/self/fd")).split() == ["0", "1", "2", "3"]


# --- ends ---


async def test_a_timeout_ends_the_whole_group_and_shows_what_there_is(box: ToolBox) -> None:
    file = box.caller.cwd / "pids"
    result = await box.call(
        "bash", command=f"echo before; (sleep 300 & echo $! >> {file}; wait) & echo $$ >> {file}; wait", timeout_s=1
    )
    assert (result.is_error, result.code) == (True, "TIMEOUT")
    assert text_of(result.content).startswith("Error: the command ran longer than 1 s and was stopped")
    assert "before" in text_of(result.content)
    assert len(_pids(file)) == 2
    assert not any(_runs(pid) for pid in _pids(file))


async def test_cancelling_ends_the_whole_group(box: ToolBox) -> None:
    file = box.caller.cwd / "pids"
    async with anyio.create_task_group() as tg:
        tg.start_soon(lambda: box.call("bash", command=f"sleep 300 & sleep 301 & echo $$ $! $(jobs -p) > {file}; wait"))
        await _wait(lambda: len(_pids(file)) >= 4)
        tg.cancel_scope.cancel()
    assert not any(_runs(pid) for pid in _pids(file))


@pytest.mark.exploration
async def test_what_ignores_the_polite_signal_is_killed(box: ToolBox) -> None:
    file = box.caller.cwd / "pids"
    began = time.monotonic()
    async with anyio.create_task_group() as tg:
        command = f"trap '' TERM; echo $$ > {file}; while true; do sleep 0.1; done"
        tg.start_soon(lambda: box.call("bash", command=command))
        await _wait(lambda: bool(_pids(file)))
        tg.cancel_scope.cancel()
    assert not any(_runs(pid) for pid in _pids(file))
    assert time.monotonic() - began < 15


async def test_a_command_may_clean_up_when_it_is_ended(box: ToolBox) -> None:
    ready, done = box.caller.cwd / "ready", box.caller.cwd / "done"
    async with anyio.create_task_group() as tg:
        command = f"trap 'echo bye > {done}; exit 0' TERM; touch {ready}; while true; do sleep 0.05; done"
        tg.start_soon(lambda: box.call("bash", command=command))
        await _wait(ready.exists)
        tg.cancel_scope.cancel()
    assert done.read_text() == "bye\n"


@pytest.mark.parametrize("holds", ["", ">/dev/null 2>&1"])
async def test_background_processes_are_stopped_when_the_command_ends(holds: str, box: ToolBox) -> None:
    file = box.caller.cwd / "pids"
    text = await box.text("bash", command=f"sleep 300 {holds} & echo $! > {file}; echo started")
    assert text == "started\n[background processes that the command left were stopped]"
    assert not any(_runs(pid) for pid in _pids(file))


async def test_a_detached_process_that_holds_the_output_is_not_waited_for(box: ToolBox) -> None:
    file = box.caller.cwd / "pids"
    text = await box.text(
        "bash", command=f"setsid sh -c 'echo $$ > {file}; exec sleep 300' & while [ ! -s {file} ]; do :; done"
    )
    (pid,) = _pids(file)
    assert "not stopped" in text
    assert _runs(pid)
    os.kill(pid, 9)
    await _wait(lambda: not _runs(pid))


async def test_what_ends_right_after_the_command_is_not_called_left(box: ToolBox) -> None:
    assert await box.text("bash", command="echo hi > >(sleep 0.02; cat)") == "hi"


async def test_a_cancelled_start_leaves_nothing(box: ToolBox) -> None:
    file = box.caller.cwd / "pids"
    with anyio.CancelScope() as scope:
        scope.cancel()
        await box.call("bash", command=f"echo $$ > {file}; sleep 300")
    assert not any(_runs(pid) for pid in _pids(file))


async def test_many_commands_at_once_all_answer(box: ToolBox) -> None:
    texts: list[str] = []

    async def one(n: int) -> None:
        texts.append(await box.text("bash", command=f"echo {n}"))

    async with anyio.create_task_group() as tg:
        for n in range(20):
            tg.start_soon(one, n)
    assert sorted(map(int, texts)) == list(range(20))


async def test_a_run_can_be_owned_by_another_task_and_read_meanwhile(tmp_path: Path) -> None:
    output = OutputBuffer()
    argv = ["/bin/sh", "-c", "echo ready; sleep 300"]
    run = await start_command(argv, cwd=tmp_path, env={"PATH": os.defpath}, output=output)
    async with anyio.create_task_group() as tg:
        tg.start_soon(run.finish)
        await _wait(lambda: "ready" in output.text())
        assert run.exit_code is None
        tg.cancel_scope.cancel()
    assert run.exit_code == -15
    assert not _runs(run.pid)


# --- environment ---


async def test_commands_get_no_keys(box: ToolBox, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEEPSEEK_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "LC_TOKEN", "ANYTHING"):
        monkeypatch.setenv(name, "s3cret")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:s3cret@proxy:1")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    text = await box.text("bash", command="env")
    assert "s3cret" not in text
    assert "LC_ALL=C.UTF-8" in text
    assert "PATH=" in text


def test_named_variables_are_passed_and_provider_keys_never() -> None:
    source = {"GH_TOKEN": "x", "TERM": "xterm", "PATH": "/bin", "no_proxy": "a"}
    passed = command_environment(source, passed=["GH_TOKEN"])
    assert (passed["GH_TOKEN"], passed["TERM"], passed["no_proxy"]) == ("x", "dumb", "a")
    assert command_environment(source, passed=["TERM"])["TERM"] == "xterm"
    with pytest.raises(ConfigError, match="DEEPSEEK_API_KEY"):
        shell_tools(Permissions(), pass_env=["DEEPSEEK_API_KEY"])


@given(st.dictionaries(st.from_regex(r"[A-Z_]{1,8}(API_KEY|TOKEN|SECRET|PASSWORD)", fullmatch=True), st.text()))
def test_nothing_that_is_called_a_secret_is_passed(source: dict[str, str]) -> None:
    assert set(command_environment(source)) & set(source) == set()


async def test_a_timeout_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    box = _box(tmp_path, timeout_s=5, max_timeout_s=10)
    refusal = await box.refusal("bash", command="true", timeout_s=11)
    assert (refusal.name, "at most 10" in str(refusal)) == ("INVALID_ARGS", True)
    assert (await box.refusal("bash", command="true", timeout_s=0)).name == "INVALID_ARGS"
    for bounds in ((0, 1), (2, 1), (1, float("inf"))):
        with pytest.raises(BadInput):
            shell_tools(Permissions(), timeout_s=bounds[0], max_timeout_s=bounds[1])


def test_commands_are_exclusive_and_their_guidance_is_gated() -> None:
    (bash,) = shell_tools(Permissions())
    assert not bash.is_safe({"command": "ls"})
    assert [(s.name, s.order, s.tool) for s in sections()] == [("tool:bash", 105, "bash")]


# --- buffer ---


@given(st.lists(st.integers(0, 9_000), max_size=20))
def test_the_buffer_tells_exactly_what_it_left_out(sizes: list[int]) -> None:
    whole = "".join(f"{n} é\n" for n in range(sum(sizes) // 6)).encode()
    buffer, at = OutputBuffer(), 0
    for size in sizes:
        buffer.add(whole[at : at + size])
        at += size
    buffer.add(whole[at:])
    text = buffer.text()
    assert buffer.total_bytes == len(whole)
    if len(whole) <= 30_000:
        assert text == whole.decode()
    else:
        match = re.search(r"\[\.\.\. (\d+) of (\d+) bytes left out here", text)
        assert match is not None
        assert int(match[2]) == len(whole)
        head, tail = text[: match.start()], text.partition(" ...]\n")[2]
        assert whole.decode("utf-8", "replace").startswith(head.rstrip("\n"))
        assert whole.decode("utf-8", "replace").endswith(tail)
        assert len(text.encode()) < 32_000


def test_a_file_that_cannot_be_written_costs_only_the_pointer(tmp_path: Path) -> None:
    (tmp_path / "spill").write_text("no folder")
    buffer = OutputBuffer(tmp_path / "spill/x.txt")
    for _ in range(10):
        buffer.store(b"x" * 10_000)
        buffer.add(b"x" * 10_000)
    assert "could not be kept" in buffer.text()
