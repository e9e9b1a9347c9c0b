"""Progress of headless work on stderr: a live tree on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

from retinue.cli.headless.watch import Line, Watch
from retinue.cli.text import brief, one_line, plain

if TYPE_CHECKING:
    from retinue.cli.headless.live import LiveTree

__all__ = ["Progress", "restore", "say", "warnings_shown"]


class Progress:
    """What people see while work goes on. Every line goes to stderr at once and a stderr that is gone is ignored."""

    def __init__(self, *, live: bool) -> None:
        self.watch = Watch()
        self._tree: LiveTree | None = None
        self._is_live = live and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    @asynccontextmanager
    async def shown(self) -> AsyncGenerator[None]:
        """What the watch observes is shown."""
        if self._is_live:
            from retinue.cli.headless.live import live_tree

            async with live_tree(self.watch) as self._tree:
                yield
        else:
            self.watch.on_change(_plain)
            self.watch.on_note(_noted)
            yield

    @asynccontextmanager
    async def paused(self) -> AsyncGenerator[None]:
        """A live tree stands still meanwhile."""
        if self._tree is None:
            yield
        else:
            async with self._tree.paused():
                yield

    def announce(self) -> None:
        """People know the session's id."""
        say(f"session {self.watch.root}")


def say(text: str) -> None:
    """A line on stderr, or several, without control characters."""
    with suppress(OSError):
        print(plain(text), file=sys.stderr, flush=True)


def restore() -> None:
    """The terminal has its cursor again, for a process that ends in the middle of a live tree."""
    if sys.stderr.isatty():
        with suppress(OSError):
            os.write(sys.stderr.fileno(), b"\x1b[?25h")


def _plain(line: Line) -> None:
    if line.parent is not None:
        say(f"{line.state or 'started'} {_name(line)}")


def _noted(line: Line, text: str) -> None:
    say(f"retinue: {'' if line.parent is None else f'{_name(line)}: '}{one_line(text)}")


def _name(line: Line) -> str:
    return f"{brief(line.label)} ({line.id})" if line.label else line.id


class _Shown(logging.Handler):
    """Log records as lines of ours; tracebacks only with RETINUE_DEBUG."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"retinue: {record.levelname.lower()}: {one_line(record.getMessage())}")
        if record.exc_info and os.environ.get("RETINUE_DEBUG"):
            say(logging.Formatter().formatException(record.exc_info))


@contextmanager
def warnings_shown() -> Generator[None]:
    """Records of the `retinue` logger are shown while the context is open."""
    handler, logger = _Shown(logging.WARNING), logging.getLogger("retinue")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
