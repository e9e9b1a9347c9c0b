"""Stored columns back into sessions and mailbox rows. What cannot be decoded names its session."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from retinue.base.ids import MessageId, SessionId
from retinue.errors import CorruptSession
from retinue.model.content import Usage, UserMessage
from retinue.session.events import Event, SessionHeader, decode_event
from retinue.session.rows import Delivery, Kind, RowState, StoredRow, Target

EventColumns: TypeAlias = tuple[int, int, str, bytes | None, bool | int]
"""Seq, time, type, payload, whether it is ignorable."""
RowColumns: TypeAlias = tuple[
    MessageId,
    int,
    RowState,
    Target,
    bool | int,
    bool | int,
    int,
    int | None,
    str | None,
    bytes,
    bytes | None,
    Kind,
    int,
]
"""Id, order, state, target, wake, parked, accepted at, turn, reason, message, usage, kind, log length."""

_header = msgspec.json.Decoder(SessionHeader)
_message = msgspec.json.Decoder(UserMessage)
_usage = msgspec.json.Decoder(Usage)
_log = logging.getLogger("retinue")


def decode_header(id: str, data: bytes) -> SessionHeader:
    """The header of a session. Raises: CorruptSession."""
    try:
        return _header.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptSession(f"session {id!r}: its header cannot be decoded: {error}") from error


def decode_log(id: SessionId, rows: Sequence[EventColumns], length: int) -> list[Event]:
    """The log of a session, which should have `length` events. Raises: CorruptSession, UnknownEvent."""
    if [row[0] for row in rows] != list(range(length)):
        raise CorruptSession(f"session {id!r}: its log should have {length} events, but some are missing or misplaced")
    return [decode_event(id, seq, time, kind, data or b"", bool(rest)) for seq, time, kind, data, rest in rows]


def decode_row(id: SessionId, row: RowColumns) -> StoredRow:
    """A mailbox row of a session. Raises: CorruptSession."""
    message_id, order, state, target, wake, parked, accepted_at, turn, reason, data, usage, kind, log_length = row
    try:
        delivery = Delivery(
            session_id=id,
            message=_message.decode(data),
            target=target,
            wake=bool(wake),
            accepted_at=accepted_at,
            usage=None if usage is None else _usage.decode(usage),
            kind=kind,
            log_length=log_length,
        )
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptSession(f"session {id!r}: message {message_id!r} cannot be decoded: {error}") from error
    return StoredRow(delivery=delivery, order=order, state=state, parked=bool(parked), turn=turn, reason=reason)


def decode_arrivals(rows: Iterable[tuple[SessionId, RowColumns]]) -> tuple[StoredRow, ...]:
    """Rows of any sessions, without those that cannot be decoded."""
    found: list[StoredRow] = []
    for id, row in rows:
        try:
            found.append(decode_row(id, row))
        except CorruptSession as error:
            report_undecodable(error)
    return tuple(found)


def report_undecodable(error: CorruptSession) -> None:
    """A listing goes on without it; the log of the process says what."""
    _log.warning("left out of a listing: %s", error)
