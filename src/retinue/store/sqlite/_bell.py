"""Owns the bell of one process: a Unix datagram socket beside its lock, rung by those who have sent something.

A ring carries nothing and may be lost, so nobody relies on it: it only makes looking prompt.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

_LONGEST = 100
"""Bytes of an address that every system takes; some take 103, some 107."""


class Bell:
    """A socket at `path` that calls `heard` on the loop for one ring or many. Raises: OSError where none can be had."""

    def __init__(self, path: str, heard: Callable[[], None]) -> None:
        self._path = path
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        self._socket = _socket()
        try:
            with _address(path) as address:
                self._socket.bind(address)
            os.chmod(path, 0o600)
        except OSError:
            self.close()
            raise
        self._loop.add_reader(self._socket.fileno(), self._rung)

    def _rung(self) -> None:
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(1)
        self._heard()

    def close(self) -> None:
        """Nobody can ring any more. Call it on the loop. Idempotent."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            with suppress(OSError):
                os.unlink(self._path)


def ring(path: str) -> None:
    """Whoever listens at `path` looks soon. If nobody does, nothing happens."""
    with suppress(OSError), _socket() as caller, _address(path) as address:
        caller.sendto(b"\0", address)


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made


@contextmanager
def _address(path: str) -> Generator[str]:
    """An address for `path` that is short enough; where /proc names open folders, any path has one."""
    if len(os.fsencode(path)) <= _LONGEST:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)
