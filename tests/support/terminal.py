"""A command at a terminal of its own: what it shows is read, and lines are typed to it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import termios
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.command import Done, Place, Running

__all__ = ["Screen", "at_terminal"]

_PATIENCE_S = 30.0


@dataclass
class Screen:
    """What the command has shown so far."""

    running: Running
    fd: int
    shown: str = ""
    _seen: int = 0

    def until(self, words: str) -> str:
        """The words have been shown after what was waited for before; the answer is all up to them."""
        end = time.monotonic() + _PATIENCE_S
        while (at := self.shown.find(words, self._seen)) < 0:
            assert time.monotonic() < end, f"{words!r} was not shown:\n{self.shown}"
            assert self._read(1.0) or self.running.process.poll() is None, f"it ended:\n{self.shown}"
        before, self._seen = self.shown[self._seen : at], at + len(words)
        return before

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def done(self) -> Done:
        """Its end, waited for; what it shows meanwhile is read."""
        end = time.monotonic() + _PATIENCE_S
        while self.running.process.poll() is None:
            assert time.monotonic() < end, f"it does not end:\n{self.shown}"
            self._read(0.05)
        while self._read(0.0):
            pass
        return self.running.done()

    def _read(self, wait_s: float) -> bool:
        if not select.select([self.fd], [], [], wait_s)[0]:
            return False
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:  # the other side has closed it
            return False
        self.shown += data.decode("utf-8", "replace")
        return bool(data)


@contextmanager
def at_terminal(place: Place, *arguments: str) -> Generator[Screen]:
    """`retinue ARGUMENTS` with stdin and stderr at a terminal that controls it."""
    ours, theirs = pty.openpty()
    try:

        def controlled() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        running = place.start(*arguments, stdin=theirs, stderr=theirs, preexec_fn=controlled)
        os.close(theirs)
        yield Screen(running, ours)
    finally:
        os.close(ours)
