"""Lines on their way into a pipe: in order, never blocking who gives them, and with an end to what may wait."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import anyio

from retinue.base.lines import Pipe

__all__ = ["Outbox"]

_BACKLOG_LINES = 2
"""Whoever leaves more unread than so many of the longest lines has gone."""

_LITTLE = 1 / 64
"""So much of the longest line, unread, keeps nobody from saying more."""

_SEND_BYTES = 65_536
"""Short lines leave together, up to about so many bytes."""

_log = logging.getLogger("retinue")


class Outbox:
    """What one side of a connection still has to say. `run` says it; the rest may be called from any task."""

    def __init__(self, pipe: Pipe, max_line_bytes: int, on_close: Callable[[], None]) -> None:
        """`on_close` is called when nobody is there any more, once."""
        self._pipe = pipe
        self._max_line_bytes = max_line_bytes
        self._on_close = on_close
        self._lines: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._written = anyio.Event()
        self._more = anyio.Event()
        self.closed = anyio.Event()
        """Nobody is there any more: what is given goes nowhere."""
        self.fault = ""
        """What the other side did so that it was given up; empty if it was not."""

    def give(self, line: bytes) -> None:
        """The line is on its way, behind everything given before. Whoever has left too much unread has gone."""
        if self.closed.is_set():
            return
        self._lines.append(line)
        self._backlog_bytes += len(line)
        self._more.set()
        if self._backlog_bytes > self._max_line_bytes * _BACKLOG_LINES:
            self.give_up(f"left {self._backlog_bytes} bytes unread")

    async def room(self) -> None:
        """The other side has little left to read, or nobody is there any more."""
        while self._backlog_bytes > self._max_line_bytes * _LITTLE and not self.closed.is_set():
            await self._written.wait()

    async def flushed(self) -> None:
        """Everything given so far was handed to the pipe, or nobody is there any more."""
        while self._backlog_bytes and not self.closed.is_set():
            await self._written.wait()

    def give_up(self, fault: str) -> None:
        """The connection has ended since the other side did that."""
        _log.warning("the other side %s; its connection is given up", fault)
        self.fault = fault
        self.close()

    def close(self) -> None:
        """Nobody is there any more."""
        if not self.closed.is_set():
            self.closed.set()
            self._written.set()
            self._on_close()

    async def run(self) -> None:
        """Nobody reads any more. Until then, what is given goes out."""
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            while self._lines:
                lines = [self._lines.popleft()]
                size = len(lines[0])
                while self._lines and size < _SEND_BYTES:
                    lines.append(self._lines.popleft())
                    size += len(lines[-1])
                try:
                    await self._pipe.send(b"".join(lines))
                except OSError:
                    self.close()
                    return
                self._backlog_bytes -= size
                self._written.set()
                self._written = anyio.Event()
