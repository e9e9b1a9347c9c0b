"""The tables of the in-memory store, and how a batch changes them so that it can be undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, assert_never

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.base.ids import MessageId, SessionId
from retinue.base.json import encode
from retinue.model.content import UserMessage
from retinue.session.events import Opaque, encode_payload, type_of
from retinue.session.rows import (
    Append,
    Batch,
    Claim,
    Committed,
    Create,
    Delivery,
    Hush,
    Insert,
    Kind,
    Op,
    Park,
    Replace,
    RowState,
    Settle,
    Target,
    Unpark,
    Withdraw,
)
from retinue.store._rules import (
    check_fence,
    check_guard,
    check_seqs,
    claim_conflict,
    id_conflict,
    log_gap,
    not_quiet,
    nothing_to_replace,
    replacement_used,
    session_exists,
    session_unknown,
    work_left,
)

K = TypeVar("K")
V = TypeVar("V")

StoredEvent = tuple[int, int, str, bytes, bool]
"""Seq, time, type, payload and whether it is ignorable."""


class MessageRecord(Struct, frozen=True, kw_only=True):
    """A mailbox row as it is stored."""

    id: MessageId
    order: int
    target: Target
    wake: bool
    accepted_at: int
    data: bytes
    usage: bytes | None
    kind: Kind = "message"
    log_length: int = 0
    state: RowState = "pending"
    parked: bool = False
    turn: int | None = None
    reason: str | None = None


class SessionTable(Struct, kw_only=True):
    """A session as it is stored. `events` and `messages` are added to, and only undone at their end."""

    id: SessionId
    root: SessionId
    parent: SessionId | None
    is_delegated: bool
    created_at: int
    header: bytes
    last_event_at: int
    open_turn: int | None = None
    open_activation: int | None = None
    events: list[StoredEvent] = field(default_factory=list[StoredEvent])
    messages: dict[MessageId, MessageRecord] = field(default_factory=dict[MessageId, MessageRecord])


class LeaseRecord(Struct, frozen=True):
    """The lease of a tree; kept when free, so that fences never go back."""

    fence: int = 0
    owner: str | None = None
    expires_at: int = 0


class Tables(Struct):
    """Everything that is stored."""

    sessions: dict[SessionId, SessionTable] = field(default_factory=dict[SessionId, SessionTable])
    owners: dict[MessageId, SessionId] = field(default_factory=dict[MessageId, SessionId])
    """The session of each message."""
    leases: dict[SessionId, LeaseRecord] = field(default_factory=dict[SessionId, LeaseRecord])


class Changes:
    """One batch on its way into the tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._undo: list[Callable[[], None]] = []

    def undo(self) -> None:
        """The tables are as they were."""
        while self._undo:
            self._undo.pop()()

    def apply(self, batch: Batch) -> Committed:
        """The batch is in the tables. Raises: what refuses it, with part of it in the tables."""
        for root, fence in batch.fences:
            check_fence(root, self._tables.leases.get(root, LeaseRecord()).fence, fence)
        result = Committed()
        for op in batch.ops:
            self._apply(op, batch, result)
        return result

    def _apply(self, op: Op, batch: Batch, result: Committed) -> None:
        match op:
            case Create():
                self._create(op, batch)
            case Append():
                self._append(op, batch)
            case Insert():
                self._insert(op, result)
            case Claim():
                self._guarded(op.session_id, batch)
                changed = self._update(op.session_id, op.ids, lambda r: replace(r, state="claimed", turn=op.turn))
                if changed != len(op.ids):
                    raise claim_conflict(op, changed)
            case Withdraw():
                self._update(op.session_id, op.ids, lambda r: replace(r, state="withdrawn", reason=op.reason))
            case Replace():
                self._replace(op, result)
            case Park():
                self._update(op.session_id, op.ids, lambda r: replace(r, parked=True))
            case Hush():
                self._update(op.session_id, op.ids, lambda r: replace(r, wake=False))
            case Unpark():
                record = self._tables.sessions.get(op.session_id)
                ids = tuple(record.messages) if record else ()
                self._update(op.session_id, ids, lambda r: replace(r, parked=False))
            case Settle():
                self._check_quiet(op.session_id, batch)
            case _:
                assert_never(op)

    def _check_quiet(self, id: SessionId, batch: Batch) -> None:
        rows = self._guarded(id, batch).messages.values()
        if any(row.state == "pending" and row.wake and not row.parked for row in rows) or any(
            record.parent == id and record.is_delegated and record.open_activation is not None
            for record in self._tables.sessions.values()
        ):
            raise not_quiet(id)

    def _put(self, table: dict[K, V], key: K, value: V) -> None:
        if key in table:
            before = table[key]
            self._undo.append(lambda: table.__setitem__(key, before))
        else:
            self._undo.append(lambda: table.__delitem__(key))
        table[key] = value

    def _guarded(self, id: SessionId, batch: Batch) -> SessionTable:
        record = self._tables.sessions.get(id)
        if record is None:
            raise session_unknown(id)
        check_guard(id, record.root, batch)
        return record

    def _create(self, op: Create, batch: Batch) -> None:
        header = op.header
        check_guard(header.id, op.root, batch)
        if header.id in self._tables.sessions:
            raise session_exists(header.id)
        record = SessionTable(
            id=header.id,
            root=op.root,
            parent=header.parent_session,
            is_delegated=header.origin is not None,
            created_at=header.created_at,
            header=encode(header),
            last_event_at=header.created_at,
        )
        self._put(self._tables.sessions, header.id, record)

    def _append(self, op: Append, batch: Batch) -> None:
        if not op.events:
            return
        record = self._guarded(op.session_id, batch)
        check_seqs(op.session_id, op.events)
        length = len(record.events)
        if op.events[0].seq != length:
            raise log_gap(op, length)
        stored = [(e.seq, e.time, type_of(e.data), encode_payload(e.data), type(e.data) is Opaque) for e in op.events]
        for event in op.events:
            event.time.to_bytes(8, signed=True)  # OverflowError: no database has room for it
        before = record.last_event_at, record.open_turn, record.open_activation

        def undo() -> None:
            del record.events[length:]
            record.last_event_at, record.open_turn, record.open_activation = before

        self._undo.append(undo)
        record.events.extend(stored)
        record.last_event_at = op.events[-1].time
        turn, activation = work_left(op.events)
        if turn is not None:
            record.open_turn = turn or None
        if activation is not None:
            record.open_activation = activation or None

    def _insert(self, op: Insert, result: Committed) -> None:
        delivery = op.delivery
        record = self._tables.sessions.get(delivery.session_id)
        if record is None:
            result.undelivered.add(delivery.id)
            return
        if delivery.id not in self._tables.owners:
            orders = [row.order for row in record.messages.values()]
            order = min(orders, default=1) - 1 if op.prepend else max(orders, default=-1) + 1
            self._add(record, _record(delivery, order))
            result.orders[delivery.id] = order
            return
        row = record.messages.get(delivery.id)
        if row is None or row.kind != delivery.kind or not _is_equal(row.data, delivery.message):
            raise id_conflict(delivery.id)
        result.repeated.add(delivery.id)
        if row.state == "pending":
            result.orders[delivery.id] = row.order

    def _add(self, record: SessionTable, row: MessageRecord) -> None:
        self._put(self._tables.owners, row.id, record.id)
        self._put(record.messages, row.id, row)

    def _update(
        self, id: SessionId, messages: Sequence[MessageId], change: Callable[[MessageRecord], MessageRecord]
    ) -> int:
        """How many of the rows were pending in that session; those are changed."""
        record = self._tables.sessions.get(id)
        changed = 0
        for message in messages if record else ():
            row = record.messages.get(message) if record else None
            if record is not None and row is not None and row.state == "pending":
                new = change(row)
                self._put(record.messages, message, new if new.state == "pending" else replace(new, parked=False))
                changed += 1
        return changed

    def _replace(self, op: Replace, result: Committed) -> None:
        delivery = op.delivery
        record = self._tables.sessions.get(delivery.session_id)
        old = record.messages.get(op.old) if record else None
        if record is None or old is None or old.state != "pending":
            raise nothing_to_replace(op)
        if delivery.id in self._tables.owners:
            raise replacement_used(delivery.id)
        self._update(record.id, (op.old,), lambda r: replace(r, state="withdrawn", reason="replaced"))
        self._add(record, replace(_record(delivery, old.order), parked=old.parked))
        result.orders[delivery.id] = old.order


def _record(delivery: Delivery, order: int) -> MessageRecord:
    return MessageRecord(
        id=delivery.id,
        order=order,
        target=delivery.target,
        wake=delivery.wake,
        accepted_at=delivery.accepted_at,
        data=encode(delivery.message),
        usage=None if delivery.usage is None else encode(delivery.usage),
        kind=delivery.kind,
        log_length=delivery.log_length,
    )


def _is_equal(data: bytes, message: UserMessage) -> bool:
    try:
        return msgspec.json.decode(data, type=UserMessage) == message
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
