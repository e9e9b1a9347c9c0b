"""Writes to a stream from a thread of its own, so that a reader who is slow, or pauses, never stops the agents."""

from __future__ import annotations

import os
import queue
import select
import threading
from collections.abc import Callable
from typing import IO, Any

from anyio import to_thread

__all__ = ["Pen"]


class Pen:
    """One stream's writer. What is written appears in order and whole; after a failure it is dropped."""

    def __init__(self, stream: IO[Any], broken: Callable[[], object] = lambda: None) -> None:
        """`broken` is called once, from the pen's thread, when nothing can be written any more."""
        stream.flush()
        self._fd = stream.fileno()
        self._broken = broken
        self._queue: queue.SimpleQueue[bytes | threading.Event] = queue.SimpleQueue()
        self.failure: OSError | None = None
        """Why nothing is written any more."""
        threading.Thread(target=self._run, name="retinue-pen", daemon=True).start()

    def write(self, data: bytes) -> None:
        """`data` is on its way. Never blocks."""
        self._queue.put(data)

    def line(self, text: str) -> None:
        """`text` and a line end are on their way, as UTF-8."""
        self.write(text.encode("utf-8", "replace") + b"\n")

    def flush(self, timeout_s: float | None = None) -> bool:
        """Everything written before has left the process, or cannot. False after `timeout_s`. Blocks."""
        done = threading.Event()
        self._queue.put(done)
        return done.wait(timeout_s)

    async def finish(self) -> None:
        """Like `flush` without bound; cancelling ends the wait."""
        await to_thread.run_sync(self.flush, abandon_on_cancel=True)

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, threading.Event):
                item.set()
            elif self.failure is None:
                try:
                    self._put(item)
                except OSError as error:
                    self.failure = error
                    self._broken()

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:  # somebody else made the stream non-blocking
                select.select([], [self._fd], [])
