"""A command as a background task: it streams its output, and its end is told to the agent that started it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio

from retinue.agent.agent import Agent
from retinue.plugins.shell.buffer import OutputBuffer
from retinue.plugins.shell.process import CommandRun, start_command
from retinue.plugins.shell.running_groups import RunningGroups
from retinue.tasks.job import Job, Stop, start_job
from retinue.tasks.record import Completed, Failed, TaskOutcome, TaskSnapshot
from retinue.tasks.runtime import Tasks
from retinue.tools.secrets import Secrets

__all__ = ["background_exit_code", "start_background"]

_FRESH_BYTES = 64_000
"""Unread output that is kept in memory; of more, only the newest is shown, and all of it is in the file."""

_EXIT = re.compile(r"exit code (?P<code>\d+)|ended by signal (?P<signal>\d+)")


class _Stream(OutputBuffer):
    """Output that is read piece by piece while it grows."""

    def __init__(self, path: Path | None, secrets: Secrets | None, tell: Callable[[str], None] | None) -> None:
        super().__init__(path, secrets, tell)
        self._fresh = bytearray()
        self._skipped = 0

    def add(self, data: bytes) -> None:
        """See OutputBuffer."""
        super().add(data)
        self._fresh += data
        excess = len(self._fresh) - _FRESH_BYTES
        if excess > 0:
            self._skipped += excess
            del self._fresh[:excess]

    def take(self) -> str:
        """What came since the last call. A character or line that is not whole yet stays for the next one."""
        data = bytes(self._fresh)
        cut = data.rfind(b"\n") + 1
        if not self.is_closed and cut:
            data = data[:cut]
        elif not self.is_closed:
            return ""
        del self._fresh[: len(data)]
        skipped, self._skipped = self._skipped, 0
        note = f"[{skipped} bytes of earlier output are not shown]\n" if skipped else ""
        return note + self.decoded(data)


async def start_background(
    tasks: Tasks | None,
    owner: Agent,
    argv: Sequence[str],
    *,
    label: str,
    env: Mapping[str, str],
    timeout_s: float | None,
    path: Path | None,
    secrets: Secrets | None = None,
    running: RunningGroups | None = None,
    afterwards: Callable[[], list[str]] | None = None,
    tell: Callable[[str], None] | None = None,
) -> TaskSnapshot:
    """The command runs as a task of `owner`, whatever becomes of the call that started it. `tell` takes its output.

    Raises: MissingSeam without a task runtime, and what `Tasks.start` raises.
    """
    output = _Stream(path, secrets, tell)

    async def open(_: Stop) -> CommandRun:
        return await start_command(
            tuple(argv), cwd=owner.cwd, env=env, output=output, running=running, afterwards=afterwards
        )

    async def result(run: CommandRun) -> TaskOutcome:
        with anyio.move_on_after(timeout_s) as bound:
            await run.finish()
        if bound.cancelled_caught:
            return Failed(f"stopped after {timeout_s:g} s")
        return _ended(run.exit_code)

    job = Job(open=open, result=result, read_output=output.take)
    return await start_job(tasks, job, kind="bash", label=label, owner=owner)


def _ended(code: int | None) -> TaskOutcome:
    if code == 0:
        return Completed(detail="exit code 0")
    return Failed(f"ended by signal {-code}" if code is not None and code < 0 else f"exit code {code}")


def background_exit_code(detail: str | None) -> int | None:
    """The exit code that the detail of an ended command names; negative for a signal, None if it names none."""
    match _EXIT.fullmatch(detail or ""):
        case re.Match() as found:
            return int(found["code"]) if found["code"] else -int(found["signal"])
        case None:
            return None
