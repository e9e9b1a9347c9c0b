"""The standard streams of this process as lines of the protocol, and nothing else on them.

The SDK reads in a thread that nobody can call off, so a process that is told to end would wait for its host to close
the stream. Here the loop itself waits for the next bytes.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager, suppress

import anyio
from anyio import to_thread

__all__ = ["Frames", "Lines", "standard_streams"]

_READ_BYTES = 1 << 16


class Lines:
    """What the host writes, line by line, until it closes the stream."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def __aiter__(self) -> AsyncGenerator[str]:
        parts: list[bytes] = []
        while data := await self._read():
            *whole, rest = data.split(b"\n")
            for line in whole:
                yield b"".join((*parts, line)).decode("utf-8", "replace")
                parts.clear()
            parts.append(rest)

    async def _read(self) -> bytes:
        with suppress(PermissionError):  # a file has always something to read, and cannot be waited for
            await anyio.wait_readable(self._fd)
        return os.read(self._fd, _READ_BYTES)


class Frames:
    """Where the host reads. What it takes no more is dropped: it has gone, and the end of its stream follows."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def write(self, text: str) -> None:
        """All of the text is on its way. Cancelled, the rest of it may still be written."""
        with suppress(OSError):
            await to_thread.run_sync(_write_all, self._fd, text.encode(), abandon_on_cancel=True)

    async def flush(self) -> None:
        """Nothing is held back."""


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


@contextmanager
def standard_streams() -> Generator[tuple[Lines, Frames]]:
    """The streams of the protocol. Meanwhile whatever else reads finds nothing, and what it prints goes to stderr."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield Lines(source), Frames(sink)
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)
