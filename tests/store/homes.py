"""Homes for the contract suite: each opens stores on one database, and can do to it what no store offers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import apsw
from msgspec.structs import replace

from retinue.base.ids import MessageId, SessionId
from retinue.session.store import SessionStore
from retinue.store.memory import MemoryHome, MemoryStore
from retinue.store.sqlite import SqliteStore
from retinue.testing.clock import FakeClock


class Home(Protocol):
    """One database, any number of processes that use it."""

    clock: FakeClock

    def open(self) -> SessionStore:
        """A store as another process would have it."""
        ...

    def kill(self, store: SessionStore) -> None:
        """The process of the store is dead, without a word."""
        ...

    def put_event(self, id: SessionId, seq: int, type_name: str, data: bytes, *, ignorable: bool = False) -> None:
        """The stored event is this one instead."""
        ...

    def lose_event(self, id: SessionId, seq: int) -> None:
        """The stored event is not there any more."""
        ...

    def put_header(self, id: SessionId, data: bytes) -> None:
        """The stored header is this instead."""
        ...

    def put_message(self, id: MessageId, data: bytes) -> None:
        """The stored message is this instead."""
        ...

    async def aclose(self) -> None:
        """Every store is closed."""
        ...


class InMemory:
    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self._home = MemoryHome()
        self._stores: list[MemoryStore] = []

    def open(self) -> MemoryStore:
        self._stores.append(MemoryStore(self.clock, self._home))
        return self._stores[-1]

    def kill(self, store: SessionStore) -> None:
        assert isinstance(store, MemoryStore)
        store.kill()

    def put_event(self, id: SessionId, seq: int, type_name: str, data: bytes, *, ignorable: bool = False) -> None:
        events = self._home.tables.sessions[id].events
        events[seq] = (seq, events[seq][1], type_name, data, ignorable)

    def lose_event(self, id: SessionId, seq: int) -> None:
        events = self._home.tables.sessions[id].events
        events[seq] = (seq + 1, *events[seq][1:])

    def put_header(self, id: SessionId, data: bytes) -> None:
        self._home.tables.sessions[id].header = data

    def put_message(self, id: MessageId, data: bytes) -> None:
        messages = self._home.tables.sessions[self._home.tables.owners[id]].messages
        messages[id] = replace(messages[id], data=data)

    async def aclose(self) -> None:
        for store in self._stores:
            await store.aclose()


class InSqlite:
    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.path = folder / "home.db"
        self._stores: list[SqliteStore] = []

    def open(self) -> SqliteStore:
        self._stores.append(SqliteStore.open(self.path, self.clock))
        return self._stores[-1]

    def kill(self, store: SessionStore) -> None:
        assert isinstance(store, SqliteStore)
        owner = store._owner
        assert owner is not None
        assert owner._fd is not None
        os.close(owner._fd)  # what the operating system does for a dead process
        owner._fd = None
        store._flusher.close()
        store._connection.close()
        store._closed = True

    def _run(self, sql: str, *values: str | int | bytes) -> None:
        connection = apsw.Connection(str(self.path))
        connection.execute(sql, values)
        assert connection.changes() == 1
        connection.close()

    def put_event(self, id: SessionId, seq: int, type_name: str, data: bytes, *, ignorable: bool = False) -> None:
        self._run(
            "UPDATE event SET type = ?, data = ?, ignorable = ? WHERE seq = ? "
            "AND session = (SELECT key FROM session WHERE id = ?)",
            *(type_name, data, ignorable, seq, id),
        )

    def lose_event(self, id: SessionId, seq: int) -> None:
        self._run("DELETE FROM event WHERE seq = ? AND session = (SELECT key FROM session WHERE id = ?)", seq, id)

    def put_header(self, id: SessionId, data: bytes) -> None:
        self._run("UPDATE session SET header = ? WHERE id = ?", data, id)

    def put_message(self, id: MessageId, data: bytes) -> None:
        self._run("UPDATE message SET data = ? WHERE id = ?", data, id)

    async def aclose(self) -> None:
        for store in self._stores:
            await store.aclose()
