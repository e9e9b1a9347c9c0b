"""The standard input and output of a program that this process starts."""

from __future__ import annotations

import os

import anyio

__all__ = ["ProgramPipe"]

_READ_BYTES = 65_536


class ProgramPipe:
    """A Pipe: both standard streams of a program, from our side and, until it is started, from its own.

    They are our own pipes: those of the loop would make the end of the program wait for whoever holds its output.
    """

    def __init__(self) -> None:
        self.theirs_in, self._input = os.pipe()
        self._output, self.theirs_out = os.pipe()
        self._open = {self.theirs_in, self._input, self._output, self.theirs_out}
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)

    def started(self) -> None:
        """Its own ends are the program's alone."""
        self._close(self.theirs_in)
        self._close(self.theirs_out)

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
