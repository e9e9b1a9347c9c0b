"""The standard streams of this process as a pipe of frames. Whatever else is printed goes to stderr."""

from __future__ import annotations

import os
import sys

import anyio

__all__ = ["StandardStreams"]

_CHUNK_BYTES = 4096
"""As much as a pipe that is writable takes without blocking. Source: POSIX, PIPE_BUF on Linux."""
_READ_BYTES = 65536


class StandardStreams:
    """A Pipe over stdin and stdout. Its descriptors stay as they are, blocking or not: others may share them."""

    def __init__(self) -> None:
        """From here on, what anybody prints to stdout goes to stderr, also what programs print that are started, and
        whoever else reads stdin finds nothing."""
        self._in, self._out = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._is_pollable_in = self._is_pollable_out = True
        """Regular files are not; reading them does not wait for anybody."""

    async def receive(self) -> bytes:
        """See Pipe."""
        while True:
            if self._is_pollable_in:
                try:
                    await anyio.wait_readable(self._in)
                except PermissionError:
                    self._is_pollable_in = False
            try:
                return os.read(self._in, _READ_BYTES)
            except BlockingIOError:  # somebody who shares it was faster
                continue

    async def send(self, data: bytes) -> None:
        """See Pipe."""
        rest = memoryview(data)
        while rest:
            if self._is_pollable_out:
                try:
                    await anyio.wait_writable(self._out)
                except PermissionError:
                    self._is_pollable_out = False
            try:
                rest = rest[os.write(self._out, rest[:_CHUNK_BYTES]) :]
            except BlockingIOError:
                continue
