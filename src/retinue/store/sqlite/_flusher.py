"""Owns the one helper thread of a store: it moves the write-ahead log into the database and makes commits power-safe.

It has a connection of its own and never changes a row. The thread starts with its first work and ends at `close`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Literal, TypeAlias

import apsw

from retinue.base.files import flush_file
from retinue.store.sqlite._sql import connect

_GROWTH_PAGES = 1_000
"""With each 4 MB of log: copy what is there into the database, beside the writer."""
_LONG_PAGES = 4_000
"""16 MB of log: then also keep the writer out for a moment, since a log that is added to never begins anew."""

Synced: TypeAlias = Callable[[Exception | None], None]
_Work: TypeAlias = Synced | Literal["checkpoint", "end"]


class Flusher:
    """Flushing and checkpointing for one database."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._work: SimpleQueue[_Work] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._asked_at = 0
        self._knows_folder = False

    def sync(self, done: Synced) -> None:
        """`done` will be called once, in the helper thread, when the log so far is on disk."""
        self._put(done)

    def grown(self, pages: int) -> None:
        """The log has so many pages now."""
        self._asked_at = min(self._asked_at, pages)  # fewer pages than then: the log has begun anew
        if pages - self._asked_at >= _GROWTH_PAGES:
            self._asked_at = pages
            self._put("checkpoint")

    def close(self) -> None:
        """All work is done and the thread has ended. Blocks; idempotent."""
        if self._thread is not None:
            self._work.put("end")
            self._thread.join()
            self._thread = None

    def _put(self, work: _Work) -> None:
        self._work.put(work)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="retinue-flusher", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        ended = False
        while not ended:
            work = [self._work.get()]
            while not self._work.empty():
                work.append(self._work.get())
            ended = "end" in work
            waiting = [item for item in work if callable(item)]
            if waiting:
                error = self._flush()
                for done in waiting:
                    done(error)
            if "checkpoint" in work:
                connection = self._checkpoint(connection)
        if connection is not None:
            connection.close()

    def _flush(self) -> Exception | None:
        try:
            flush_log(self._path, folder=not self._knows_folder)
        except OSError as error:
            return error
        self._knows_folder = True
        return None

    def _checkpoint(self, connection: apsw.Connection | None) -> apsw.Connection | None:
        # A failure here loses nothing: the log stays, and is asked about again when it has grown.
        with suppress(apsw.Error):
            if connection is None:
                connection = connect(self._path)
                connection.set_busy_timeout(100)
            pages, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if pages >= _LONG_PAGES:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        return connection


def flush_log(path: str, *, folder: bool) -> None:
    """The write-ahead log is on disk, and with `folder` also the fact that it exists.

    Opening this file by hand is safe: SQLite locks the database and its shared memory, never the log. Raises: OSError,
    also if there is no such file: somebody has taken away what was committed, and a disk cannot confirm that.
    """
    flush_file(path + "-wal")
    if folder:
        flush_file(os.path.dirname(path) or ".")
