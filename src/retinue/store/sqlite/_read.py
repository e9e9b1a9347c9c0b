"""Reads sessions, mailboxes and listings of one database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import apsw

from retinue.base.ids import SessionId
from retinue.base.json import encode
from retinue.errors import CorruptSession
from retinue.session.rows import StoredRow
from retinue.session.store import Arrivals, SessionRecord, SessionSummary, StoredSession
from retinue.store._decode import (
    EventColumns,
    RowColumns,
    decode_arrivals,
    decode_header,
    decode_log,
    decode_row,
    report_undecodable,
)
from retinue.store._rules import check_prefix, resolved, session_not_found, tree_not_found
from retinue.store.sqlite._sql import SQL, Row, Transaction, corrupt, run


class Reader:
    """Reads one database. What it answers is one moment's state. Raises apsw errors unless it says otherwise."""

    __slots__ = ("_connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def _all(self, name: str, *values: int | str) -> list[Row]:
        return run(self._connection, SQL[name], values)

    def session(self, id: SessionId) -> StoredSession:
        """The whole session. Raises: SessionNotFound, CorruptSession."""
        try:
            with Transaction(self._connection, "DEFERRED"):
                key, header, root, length = self._session(id)
                events = cast("list[EventColumns]", self._all("read_events", key))
                pending = cast("list[RowColumns]", self._all("read_pending", key))
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise corrupt(id, error) from error
        return StoredSession(
            header=decode_header(id, header),
            root=root,
            events=decode_log(id, events, length),
            pending=[decode_row(id, row) for row in pending],
        )

    def rows(self, id: SessionId) -> list[StoredRow]:
        """Every mailbox row of the session. Raises: SessionNotFound, CorruptSession."""
        try:
            with Transaction(self._connection, "DEFERRED"):
                rows = cast("list[RowColumns]", self._all("read_messages", self._session(id)[0]))
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise corrupt(id, error) from error
        return [decode_row(id, row) for row in rows]

    def tree(self, root: SessionId) -> list[SessionRecord]:
        """Every session of the tree with all its rows. Raises: SessionNotFound, CorruptSession."""
        id = root
        result: list[SessionRecord] = []
        try:
            with Transaction(self._connection, "DEFERRED"):
                for row in self._all("read_tree", root):
                    key, id, header, length = cast("tuple[int, SessionId, bytes, int]", row)
                    events = cast("list[EventColumns]", self._all("read_events", key))
                    rows = cast("list[RowColumns]", self._all("read_messages", key))
                    result.append(
                        SessionRecord(
                            header=decode_header(id, header),
                            events=decode_log(id, events, length),
                            rows=[decode_row(id, row) for row in rows],
                        )
                    )
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise corrupt(id, error) from error
        if not result:
            raise tree_not_found(root)
        return result

    def _session(self, id: SessionId) -> tuple[int, bytes, SessionId, int]:
        rows = self._all("read_session", id)
        if not rows:
            raise session_not_found(id)
        return cast("tuple[int, bytes, SessionId, int]", rows[0])

    def summary(self, id: SessionId) -> SessionSummary | None:
        """One line about the session, or None. Raises: CorruptSession."""
        rows = self._all("summary", id)
        return _summary(rows[0]) if rows else None

    def summaries(self, name: str, *values: str) -> list[SessionSummary]:
        """The sessions of a listing; those that cannot be decoded are left out and logged."""
        result: list[SessionSummary] = []
        for row in self._all(name, *values):
            try:
                result.append(_summary(row))
            except CorruptSession as error:
                report_undecodable(error)
        return result

    def owing(self, root: SessionId) -> list[SessionId]:
        """Sessions of the tree that owe work."""
        return [cast("SessionId", row[0]) for row in self._all("owing", root)]

    def arrivals(self, roots: Sequence[SessionId], seen: int | None) -> Arrivals:
        """Pending rows of the trees that can be decoded; none if only this connection has written since `seen`."""
        version = cast("int", run(self._connection, "PRAGMA data_version")[0][0])
        if version == seen:
            return Arrivals((), version)
        rows = self._all("arrivals", encode(roots).decode())
        columns = [(cast("SessionId", row[0]), cast("RowColumns", row[1:])) for row in rows]
        return Arrivals(decode_arrivals(columns), version)

    def resolve(self, prefix: str) -> SessionId:
        """The session of that id or prefix. Raises: SessionNotFound, BadInput."""
        check_prefix(prefix)
        rows = self._all("resolve", prefix, prefix + "\U0010ffff")
        return resolved(prefix, [cast("SessionId", row[0]) for row in rows])


def _summary(row: Row) -> SessionSummary:
    id, header, root, length, last_event_at, open_turn, pending = cast(
        "tuple[str, bytes, SessionId, int, int, int | None, int]", row
    )
    return SessionSummary(
        header=decode_header(id, header),
        root=root,
        events=length,
        last_event_at=last_event_at,
        open_turn=open_turn,
        pending=pending,
    )
