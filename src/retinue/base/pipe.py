"""The standard input and output of a program that this process starts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import anyio
from anyio.abc import Process

__all__ = ["Groups", "ProgramPipe"]

_READ_BYTES = 65_536


class Groups(Protocol):
    """Knows which groups of processes this process has begun, so that a later one finds what was left of them."""

    @property
    def mark(self) -> Mapping[str, str]:
        """What their environment must hold."""
        ...

    def add(self, pid: int) -> None:
        """The group is there."""
        ...

    def remove(self, pid: int) -> None:
        """The group is gone."""
        ...


class ProgramPipe:
    """A Pipe: both standard streams of a program, from our side and, until it is started, from its own.

    They are our own pipes: those of the loop would make the end of the program wait for whoever holds its output.
    """

    def __init__(self) -> None:
        self._theirs_in, self._input = os.pipe()
        self._output, self._theirs_out = os.pipe()
        self._open = {self._theirs_in, self._input, self._output, self._theirs_out}
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)

    async def start(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stderr: IO[Any], groups: Groups | None
    ) -> Process:
        """The program runs, in a group of its own that `groups` knows, with its ends of the pipe.

        It sees `env` and the mark of `groups`, and nothing else. Whoever ends it takes its group out of `groups`. To be
        called once. Raises: OSError, ValueError. Shielded: cancelled after the fork, nobody could stop the group.
        """
        try:
            with anyio.CancelScope(shield=True):
                process = await anyio.open_process(
                    list(argv),
                    stdin=self._theirs_in,
                    stdout=self._theirs_out,
                    stderr=stderr,
                    cwd=cwd,
                    env=dict(env) if groups is None else {**env, **groups.mark},
                    start_new_session=True,
                )
                if groups is not None:
                    groups.add(process.pid)
                return process
        except subprocess.SubprocessError as error:
            raise OSError(str(error)) from error
        finally:
            self._close(self._theirs_in)
            self._close(self._theirs_out)
        raise AssertionError("a scope that nobody cancels lets its block end")

    def end_input(self) -> None:
        """The program reads the end of its input. Nobody may be sending."""
        self._close(self._input)

    def close(self) -> None:
        """Nothing is open any more."""
        for fd in tuple(self._open):
            self._close(fd)

    def _close(self, fd: int) -> None:
        if fd in self._open:
            self._open.discard(fd)
            os.close(fd)

    async def receive(self) -> bytes:
        """See Pipe."""
        while True:
            await anyio.wait_readable(self._output)
            try:
                return os.read(self._output, _READ_BYTES)
            except BlockingIOError:
                continue

    async def send(self, data: bytes) -> None:
        """See Pipe."""
        rest = memoryview(data)
        while rest:
            await anyio.wait_writable(self._input)
            try:
                rest = rest[os.write(self._input, rest) :]
            except BlockingIOError:
                continue

    async def drain(self) -> None:
        """What the program still writes is thrown away, so that it does not wait for a reader."""
        while await self.receive():
            pass
