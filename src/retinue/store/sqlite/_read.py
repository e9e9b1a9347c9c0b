"""Turns stored rows into sessions, mailbox rows and summaries. What cannot be decoded names its session."""

from __future__ import annotations

import logging
from typing import cast

import apsw
import msgspec

from retinue.base.ids import SessionId
from retinue.errors import BadInput, CorruptSession, SessionNotFound
from retinue.model.content import Usage, UserMessage
from retinue.session.events import Event, SessionHeader, decode_event
from retinue.session.rows import Delivery, RowState, StoredRow, Target
from retinue.session.store import SessionSummary, StoredSession
from retinue.store.sqlite._sql import SQL, Row, Transaction, corrupt, run

_header = msgspec.json.Decoder(SessionHeader)
_message = msgspec.json.Decoder(UserMessage)
_usage = msgspec.json.Decoder(Usage)
_log = logging.getLogger("retinue")


class Reader:
    """Reads one database. What it answers is one moment's state."""

    __slots__ = ("_connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def _all(self, name: str, *values: int | str) -> list[Row]:
        return run(self._connection, SQL[name], values)

    def session(self, id: SessionId) -> StoredSession:
        """The whole session, as of one moment. Raises: SessionNotFound, CorruptSession."""
        try:
            with Transaction(self._connection, "DEFERRED"):
                key, header, root, length = self._session(id)
                events = self._all("read_events", key)
                pending = self._all("read_pending", key)
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise corrupt(id, error) from error
        if [row[0] for row in events] != list(range(length)):
            raise CorruptSession(f"session {id!r}: its log should have {length} events and has others or gaps")
        return StoredSession(
            header=_decode_header(id, header),
            root=root,
            events=[_event(id, row) for row in events],
            pending=[_stored_row(id, row) for row in pending],
        )

    def rows(self, id: SessionId) -> list[StoredRow]:
        """Every mailbox row of the session. Raises: SessionNotFound, CorruptSession."""
        try:
            with Transaction(self._connection, "DEFERRED"):
                rows = self._all("read_messages", self._session(id)[0])
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise corrupt(id, error) from error
        return [_stored_row(id, row) for row in rows]

    def _session(self, id: SessionId) -> tuple[int, bytes, SessionId, int]:
        rows = self._all("read_session", id)
        if not rows:
            raise SessionNotFound(f"no session {id!r} is stored here; list the sessions to see which are")
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
                _log.warning("left out of a listing: %s", error)
        return result

    def owing(self, root: SessionId) -> list[SessionId]:
        """Sessions of the tree that owe work."""
        return [cast("SessionId", row[0]) for row in self._all("owing", root)]

    def resolve(self, prefix: str) -> SessionId:
        """The session of that id or prefix. Raises: SessionNotFound, BadInput."""
        found = [cast("SessionId", row[0]) for row in self._all("resolve", prefix, prefix + "\U0010ffff")]
        if not found:
            raise SessionNotFound(f"no session whose id begins with {prefix!r} is stored here")
        if len(found) > 1 and found[0] != prefix:
            raise BadInput(f"{prefix!r} begins several session ids ({', '.join(found[:3])}, ...); give more of it")
        return found[0]


def _decode_header(id: str, data: bytes) -> SessionHeader:
    try:
        return _header.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptSession(f"session {id!r}: its header cannot be decoded: {error}") from error


def _event(id: SessionId, row: Row) -> Event:
    seq, time, type_name, ignorable, data = cast("tuple[int, int, str, int, bytes | None]", row)
    return decode_event(id, seq, time, type_name, b"" if data is None else data, bool(ignorable))


def _stored_row(id: SessionId, row: Row) -> StoredRow:
    message_id, order, state, target, wake, parked, accepted_at, turn, reason, data, usage = cast(
        "tuple[str, int, RowState, Target, int, int, int, int | None, str | None, bytes, bytes | None]", row
    )
    try:
        delivery = Delivery(
            session_id=id,
            message=_message.decode(data),
            target=target,
            wake=bool(wake),
            accepted_at=accepted_at,
            usage=None if usage is None else _usage.decode(usage),
        )
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptSession(f"session {id!r}: message {message_id!r} cannot be decoded: {error}") from error
    return StoredRow(delivery=delivery, order=order, state=state, parked=bool(parked), turn=turn, reason=reason)


def _summary(row: Row) -> SessionSummary:
    id, header, root, length, last_event_at, open_turn, pending = cast(
        "tuple[str, bytes, SessionId, int, int, int | None, int]", row
    )
    return SessionSummary(
        header=_decode_header(id, header),
        root=root,
        events=length,
        last_event_at=last_event_at,
        open_turn=open_turn,
        pending=pending,
    )
