"""One command as a group of processes: started, watched, and ended as a whole.

A `CommandRun` is what both a foreground call and a background task drive: whoever owns it awaits `finish()` in a task
of its own, reads `output` meanwhile, and stops it by cancelling that task.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.abc import Process
from anyio.lowlevel import checkpoint

from retinue.base.groups import end_group, lives, wait_gone
from retinue.plugins.shell.buffer import OutputBuffer
from retinue.plugins.shell.running_groups import RunningGroups

__all__ = ["CommandRun", "start_command"]

_CHUNK_BYTES = 65_536
_DRAIN_BYTES = 1_048_576
"""How much is still taken from the pipe once nobody waits for more."""
_LEAVE_S = 0.5
"""How long what a command started may outlive it, and hold its output, before it counts as left behind."""
_TERM_S = 2.0
"""From SIGTERM to SIGKILL."""
_KILL_S = 1.0
"""From SIGKILL to giving up: a process the kernel does not let die is not waited for."""


async def start_command(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    output: OutputBuffer,
    running: RunningGroups | None = None,
    afterwards: Callable[[], list[str]] | None = None,
) -> CommandRun:
    """The command runs in a session and process group of its own, without input; both outputs go to `output` in order.

    `afterwards` is called when nothing of it runs any more, and what it returns is said below the output. The caller
    must `finish` it. Raises: OSError or ValueError if it cannot be started.
    """
    # Our own pipe: the loop's would make the end of the process wait for whoever else holds its output.
    reading, writing = os.pipe()
    try:
        os.set_blocking(reading, False)
        process = await _open(argv, cwd, env if running is None else {**env, **running.mark}, writing)
        if running is not None:
            running.add(process.pid)
        return CommandRun(process, reading, output, running, afterwards)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)


async def _open(argv: Sequence[str], cwd: Path, env: Mapping[str, str], writing: int) -> Process:
    # Shielded: if this were cancelled after the fork, nobody could stop the whole group.
    with anyio.CancelScope(shield=True):
        return await anyio.open_process(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    raise AssertionError("a scope that nobody cancels lets its block end")


class CommandRun:
    """A started command. Made by `start_command`."""

    def __init__(
        self,
        process: Process,
        reading: int,
        output: OutputBuffer,
        running: RunningGroups | None = None,
        afterwards: Callable[[], list[str]] | None = None,
    ) -> None:
        self._running = running
        self._afterwards = afterwards
        self._process = process
        self._reading = reading
        self._ended = anyio.Event()
        self.output = output
        self.stopped_others = False
        """After `finish`: the command left processes in its group, and they were stopped."""
        self.left_others = False
        """After `finish`: a process that left the group still holds the output; it was not stopped."""

    @property
    def pid(self) -> int:
        """The command's process id, which is also its group's and its session's."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.returncode

    async def finish(self) -> None:
        """The command has ended, and so has everything in its group. Must be called exactly once.

        Cancelling ends the group: SIGTERM, two seconds, SIGKILL. It takes three and a half seconds at most.
        """
        try:
            async with anyio.create_task_group() as tg:
                tg.start_soon(self._pump)
                await self._process.wait()
                with anyio.move_on_after(_LEAVE_S):
                    await wait_gone(self.pid)
                    await self._ended.wait()
                tg.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(_TERM_S + _KILL_S + 0.5, shield=True):
                had_ended = self._process.returncode is not None
                self.stopped_others = await self._stop() and had_ended
                await self._process.wait()
                if not had_ended:
                    # In a sandbox the rest is in no group of ours: it has ended when nobody holds the output.
                    with anyio.move_on_after(_LEAVE_S):
                        await self._pump()
            self._drain()
            held = self.output.mask.end()
            if held and self.output.is_file_due(len(held)):
                self.output.store(held)
            self.output.add(held)
            for said in self._afterwards() if self._afterwards is not None else ():
                self.output.add(f"\n[{said}]\n".encode(errors="surrogateescape"))
            if self._running is not None:
                self._running.remove(self.pid)
            self.left_others = not self._ended.is_set()
            os.close(self._reading)
            self.output.close()

    async def _pump(self) -> None:
        """Everything that came through the pipe is in `output`; the pipe has ended."""
        while True:
            try:
                data = os.read(self._reading, _CHUNK_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._reading)
                continue
            if not data:
                self._ended.set()
                return
            data = self.output.mask.feed(data)
            if self.output.is_file_due(len(data)):
                with anyio.CancelScope(shield=True):  # what was taken from the pipe is not lost
                    await to_thread.run_sync(self.output.store, data)
            self.output.add(data)
            await checkpoint()

    def _drain(self) -> None:
        """What is in the pipe right now is in `output`, up to a bound."""
        taken = 0
        while taken < _DRAIN_BYTES and not self._ended.is_set():
            try:
                data = os.read(self._reading, _CHUNK_BYTES)
            except BlockingIOError:
                return
            if data:
                data = self.output.mask.feed(data)
                if self.output.is_file_due(len(data)):
                    self.output.store(data)
                self.output.add(data)
                taken += len(data)
            else:
                self._ended.set()

    async def _stop(self) -> bool:
        """Nothing of the group lives, as far as that can be forced. True if there was something."""
        if self._process.returncode is not None and not lives(self.pid):
            return False
        await end_group(self.pid, term_s=_TERM_S, kill_s=_KILL_S)
        return True
