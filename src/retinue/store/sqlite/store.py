"""The SQLite store: the contract of `session/store.py` on one database file.

Batches are applied on the caller's loop in one short transaction; what waits for the disk happens in one helper thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import apsw

from retinue.base.clock import Clock
from retinue.base.ids import SessionId
from retinue.errors import StoreFailure, StoreLocked
from retinue.session.rows import Batch, StoredRow
from retinue.session.store import Arrivals, Lease, Outcome, SessionRecord, SessionSummary, StoreBusy, StoredSession
from retinue.store._rules import refusal
from retinue.store.sqlite._apply import REFUSALS, Applier
from retinue.store.sqlite._bell import Bell, ring
from retinue.store.sqlite._flusher import Flusher, flush_log
from retinue.store.sqlite._leases import Leases
from retinue.store.sqlite._owners import Owner, owners_folder
from retinue.store.sqlite._read import Reader
from retinue.store.sqlite._remove import remove_tree
from retinue.store.sqlite._schema import check_version, open_database
from retinue.store.sqlite._sql import failure, run

__all__ = ["SqliteStore"]

T = TypeVar("T")

_RETRY_FIRST_S, _RETRY_MAX_S = 0.002, 0.05
_BUSY_LIMIT_S = 30.0
"""How long a lease or a read waits for another process; the writer of batches has its own limit."""


class SqliteStore:
    """Sessions in one database file. Open it with `open`; used from one event loop."""

    def __init__(self, connection: apsw.Connection, path: str, clock: Clock, owner: Owner | None) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._path = path
        self._clock = clock
        self._owner = owner
        self._reader = Reader(connection)
        self._leases = Leases(connection, owner, clock) if owner is not None else None
        self._flusher = Flusher(path)
        self._bell: Bell | None = None
        self._closed = False

    @classmethod
    def open(cls, path: str | Path, clock: Clock, *, read_only: bool = False) -> SqliteStore:
        """The store of the database at `path`; the caller closes it. May block for up to 5 s.

        A missing file and missing folders are created, for the user alone. `read_only` looks at an existing database
        beside its writers and takes no lock that they would feel. Raises: StoreFailure, SchemaTooNew.
        """
        name = os.path.abspath(path)
        connection = open_database(name, read_only=read_only)
        if read_only:
            return cls(connection, name, clock, None)
        try:
            owner = Owner(owners_folder(name), clock.now_ms())
        except BaseException:
            connection.close()
            raise
        try:
            check_version(connection, name)  # whoever migrates looks for living owners: now this is one
        except BaseException:
            connection.close()
            owner.close()
            raise
        owner.clean()
        store = cls(connection, name, clock, owner)
        connection.set_wal_hook(store._committed)
        return store

    def _committed(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._flusher.grown(pages)
        return apsw.SQLITE_OK

    # Writing.

    def begin(self, batches: Sequence[Batch], done: Callable[[Sequence[Outcome]], None]) -> None:
        """See the contract. The outcomes are there, and `done` was called, when this returns."""
        self._check_writable()
        done(self._write(batches))

    def _write(self, batches: Sequence[Batch]) -> Sequence[Outcome]:
        try:
            try:
                return self._write_all(batches)
            except REFUSALS as error:
                self._roll_back()
                return [refusal(error)] if len(batches) == 1 else self._write_each(batches)
        except apsw.BusyError as error:
            self._roll_back()
            raise StoreBusy(self._holders()) from error
        except apsw.Error as error:
            self._roll_back()
            return [failure(error, self._path)] * len(batches)
        except BaseException:
            self._roll_back()
            raise

    def _write_all(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Every batch is committed. Raises: the first refusal, with the transaction open."""
        run(self._cursor, "BEGIN IMMEDIATE")
        applier = Applier(self._connection, self._cursor)
        outcomes: list[Outcome] = [applier.apply(batch) for batch in batches]
        applier.finish()
        run(self._cursor, "COMMIT")
        return outcomes

    def _write_each(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Each batch is committed or refused.

        Savepoints cost as much as the batches themselves, so they are for the rare group in which one is refused.
        """
        run(self._cursor, "BEGIN IMMEDIATE")
        outcomes: list[Outcome] = []
        for batch in batches:
            run(self._cursor, "SAVEPOINT batch")
            try:
                applier = Applier(self._connection, self._cursor)
                outcome = applier.apply(batch)
                applier.finish()
                outcomes.append(outcome)
            except REFUSALS as error:
                run(self._cursor, "ROLLBACK TO batch")
                outcomes.append(refusal(error))
            run(self._cursor, "RELEASE batch")
        run(self._cursor, "COMMIT")
        return outcomes

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(apsw.Error):
                run(self._connection, "ROLLBACK")

    def begin_sync(self, done: Callable[[Exception | None], None]) -> None:
        """See the contract."""
        self._check_writable()
        loop = asyncio.get_running_loop()

        def synced(error: Exception | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(done, error)

        self._flusher.sync(synced)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFailure(f"the store of {self._path!r} is closed")

    def _check_writable(self) -> Leases:
        self._check_open()
        if self._leases is None:
            raise StoreFailure(f"the store of {self._path!r} is open for reading only")
        return self._leases

    def _holders(self) -> str | None:
        others = self._owner.others() if self._owner is not None else []
        return " or ".join(f"process {info.pid} on {info.host}" for info in others) or None

    # Reading and leases: nothing to wait for, unless another process is in the way for a moment.

    async def _run(self, work: Callable[[], T]) -> T:
        self._check_open()
        delay_s, waited_s = _RETRY_FIRST_S, 0.0
        while True:
            try:
                return work()
            except apsw.BusyError as error:
                if waited_s >= _BUSY_LIMIT_S:
                    raise StoreLocked(
                        f"the database {self._path!r} has been locked for {waited_s:.0f} s "
                        f"by {self._holders() or 'another process'}; end or continue that process"
                    ) from error
            except apsw.Error as error:
                raise failure(error, self._path) from error
            await anyio.sleep(delay_s)
            waited_s += delay_s
            delay_s = min(delay_s * 2, _RETRY_MAX_S)
            self._check_open()

    async def read(self, session_id: SessionId) -> StoredSession:
        """See the contract."""
        return await self._run(lambda: self._reader.session(session_id))

    async def read_rows(self, session_id: SessionId) -> list[StoredRow]:
        """See the contract."""
        return await self._run(lambda: self._reader.rows(session_id))

    async def summary(self, session_id: SessionId) -> SessionSummary | None:
        """See the contract."""
        return await self._run(lambda: self._reader.summary(session_id))

    async def resolve(self, prefix: str) -> SessionId:
        """See the contract."""
        return await self._run(lambda: self._reader.resolve(prefix))

    async def roots(self) -> list[SessionSummary]:
        """See the contract."""
        return await self._run(lambda: self._reader.summaries("roots"))

    async def children(self, parent: SessionId) -> list[SessionSummary]:
        """See the contract."""
        return await self._run(lambda: self._reader.summaries("children", parent))

    async def tree(self, root: SessionId) -> list[SessionSummary]:
        """See the contract."""
        return await self._run(lambda: self._reader.summaries("tree", root))

    async def read_tree(self, root: SessionId) -> list[SessionRecord]:
        """See the contract."""
        return await self._run(lambda: self._reader.tree(root))

    async def owing(self, root: SessionId) -> list[SessionId]:
        """See the contract."""
        return await self._run(lambda: self._reader.owing(root))

    async def arrivals(self, roots: Sequence[SessionId], seen: int | None) -> Arrivals:
        """See the contract."""
        return await self._run(lambda: self._reader.arrivals(roots, seen))

    def listen(self, heard: Callable[[], None]) -> bool:
        """See the contract. No socket can be had, for example, under a long path on a system without /proc."""
        self._check_writable()
        assert self._owner is not None
        try:
            self._bell = Bell(self._owner.bell(self._owner.id), heard)
        except OSError:
            return False
        return True

    async def ring(self, root: SessionId) -> str | None:
        """See the contract."""
        leases = self._check_writable()
        holder = await self._run(lambda: leases.holder(root))
        if holder is None:
            return None
        assert self._owner is not None
        ring(self._owner.bell(holder))
        info = self._owner.info(holder)
        return "another process" if info is None else f"process {info.pid} on {info.host}"

    async def acquire(self, root: SessionId) -> Lease:
        """See the contract."""
        leases = self._check_writable()
        return await self._run(lambda: leases.acquire(root))

    async def renew(self, leases: Sequence[Lease]) -> list[Lease | None]:
        """See the contract."""
        own = self._check_writable()
        return await self._run(lambda: own.renew(leases))

    async def release(self, lease: Lease) -> None:
        """See the contract."""
        leases = self._check_writable()
        await self._run(lambda: leases.release(lease))

    async def remove(self, lease: Lease) -> list[SessionId]:
        """See the contract."""
        owner = self._check_writable().owner
        return await self._run(lambda: remove_tree(self._connection, lease, owner))

    async def aclose(self) -> None:
        """Leases are free, everything is on disk, and without other users the home is the one database file."""
        if self._closed:
            return
        self._closed = True
        if self._bell is not None:
            self._bell.close()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._close)

    def _close(self) -> None:
        self._flusher.close()
        connection = self._connection
        try:
            if self._leases is not None:
                connection.set_wal_hook(None)
                connection.set_busy_timeout(1000)
                with suppress(apsw.Error):  # then they are found free: their owner is dead
                    self._leases.release_all()
                try:
                    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                except apsw.Error:
                    with suppress(OSError):
                        flush_log(self._path, folder=True)
        finally:
            with suppress(apsw.Error):  # what a failing disk has left to say: all that was committed is in the log
                connection.close()
            if self._owner is not None:
                self._owner.close()
