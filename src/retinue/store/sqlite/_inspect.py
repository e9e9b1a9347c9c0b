"""Looks a whole database over beside whoever writes it, and changes nothing. What is unreadable is told, not raised."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar, cast

import apsw
from msgspec import Struct

from retinue.base.ids import SessionId
from retinue.errors import CorruptSession
from retinue.session.events import Event, SessionHeader
from retinue.session.rows import StoredRow
from retinue.store._decode import EventColumns, RowColumns, decode_header, decode_log, decode_row
from retinue.store.sqlite._owners import OwnerInfo, is_living, living_ids, owner_info, owners_folder
from retinue.store.sqlite._schema import open_database
from retinue.store.sqlite._sql import SQL, Row, Transaction, failure, run

__all__ = ["InspectedSession", "InspectedTree", "Inspector"]

T = TypeVar("T")
_MOST = 20
"""Damages of a database that are told; one broken page makes many."""


class InspectedSession(Struct, frozen=True, kw_only=True):
    """One session as far as it can be read. None stands for what cannot; `unreadable` says why."""

    id: SessionId
    header: SessionHeader | None
    events: list[Event] | None
    rows: list[StoredRow]
    open_turn: int | None
    open_activation: int | None
    unreadable: tuple[str, ...]


class InspectedTree(Struct, frozen=True, kw_only=True):
    """A tree at one moment, and who drives it."""

    root: SessionId
    sessions: list[InspectedSession]
    driver: OwnerInfo | None
    """The living process that has its lease."""
    is_driven: bool
    is_abandoned: bool
    """Its lease belongs to a process that died and freed nothing."""


class Inspector:
    """One database, open for reading. Close it."""

    def __init__(self, path: str) -> None:
        """Raises: StoreFailure, SchemaTooNew."""
        self._path = os.path.abspath(path)
        self._owners = owners_folder(self._path)
        self._connection = open_database(self._path, read_only=True)
        self._connection.set_busy_timeout(5000)

    def close(self) -> None:
        """The database is not used any more."""
        self._connection.close()

    def damage(self) -> list[str]:
        """What SQLite finds wrong with the file; empty if it is sound."""
        try:
            rows = run(self._connection, f"PRAGMA integrity_check({_MOST})")
        except apsw.Error as error:
            return [str(failure(error, self._path))]
        return [str(row[0]) for row in rows if row[0] != "ok"]

    def orphans(self) -> list[tuple[str, int]]:
        """Kinds of rows that belong to no session any more, and how many there are. Raises: StoreFailure."""
        rows = cast("list[tuple[str, int]]", self._read(lambda: run(self._connection, SQL["orphans"])))
        return [(what, count) for what, count in rows if count]

    def roots(self) -> list[SessionId]:
        """The roots of all trees. Raises: StoreFailure."""
        return [cast(SessionId, row[0]) for row in self._read(lambda: run(self._connection, SQL["all_roots"]))]

    def tree(self, root: SessionId) -> InspectedTree:
        """The tree, with no sessions if it was removed just now. Raises: StoreFailure."""
        # Asked before the moment that is looked at: whoever lived then may have ended in order since.
        alive = living_ids(self._owners)
        sessions, owner = self._read(lambda: self._tree(root))
        is_driven = owner is not None and (owner in alive or is_living(self._owners, owner))
        return InspectedTree(
            root=root,
            sessions=sessions,
            driver=owner_info(self._owners, owner) if owner is not None and is_driven else None,
            is_driven=is_driven,
            is_abandoned=owner is not None and not is_driven,
        )

    def _tree(self, root: SessionId) -> tuple[list[InspectedSession], str | None]:
        with Transaction(self._connection, "DEFERRED"):
            lease = run(self._connection, SQL["read_lease"], (root,))
            sessions = [self._session(row) for row in run(self._connection, SQL["inspect_tree"], (root,))]
        return sessions, cast("str | None", lease[0][1]) if lease else None

    def _session(self, row: Row) -> InspectedSession:
        key, id, header, length, turn, activation = cast(
            "tuple[int, SessionId, bytes, int, int | None, int | None]", row
        )
        wrong: list[str] = []

        def part(read: Callable[[], T]) -> T | None:
            try:
                return read()
            except CorruptSession as error:
                wrong.append(str(error))
            except (apsw.CorruptError, apsw.NotADBError) as error:
                wrong.append(f"session {id!r}: the database is damaged there ({error})")
            return None

        def columns(name: str) -> list[Row]:
            return run(self._connection, SQL[name], (key,))

        events = part(lambda: decode_log(id, cast("list[EventColumns]", columns("read_events")), length))
        stored = part(lambda: cast("list[RowColumns]", columns("read_messages"))) or []
        rows = [part(lambda one=one: decode_row(id, one)) for one in stored]
        return InspectedSession(
            id=id,
            header=part(lambda: decode_header(id, header)),
            events=events,
            rows=[one for one in rows if one is not None],
            open_turn=turn,
            open_activation=activation,
            unreadable=tuple(wrong),
        )

    def _read(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except apsw.Error as error:
            raise failure(error, self._path) from error
