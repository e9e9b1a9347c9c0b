"""Applies one group of batches inside an open transaction: conditions are checked, then rows are written.

Nothing here begins or ends a transaction; whoever calls undoes what a refused batch has written.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import assert_never, cast

import apsw
import msgspec

from retinue.base.ids import SessionId
from retinue.base.json import encode
from retinue.errors import RetinueError
from retinue.model.content import UserMessage
from retinue.session.events import Event, Opaque, RequestHeaderChange, encode_payload, type_of
from retinue.session.rows import (
    Append,
    Batch,
    Claim,
    Committed,
    Create,
    Delivery,
    Hush,
    Insert,
    Op,
    Park,
    Replace,
    Settle,
    Unpark,
    Withdraw,
)
from retinue.store._rules import (
    VALUE_ERRORS,
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
from retinue.store.sqlite._sql import SQL, Row, run, run_many

_SHARED_FROM = 1024
"""Bytes from which a request header is stored once for all sessions that carry it."""

REFUSALS = (RetinueError, apsw.ConstraintError, apsw.TooBigError, *VALUE_ERRORS)
"""What refuses one batch; any other failure of the database is the whole transaction's."""

_message = msgspec.json.Decoder(UserMessage)


class _Growth:
    """What one transaction adds to one log."""

    __slots__ = ("activation", "count", "key", "op", "time", "turn")

    def __init__(self, key: int, op: Append) -> None:
        self.key = key
        self.op = op
        self.count = 0
        self.time = 0
        self.turn: int | None = None
        self.activation: int | None = None

    @property
    def first(self) -> int:
        return self.op.events[0].seq

    def add(self, events: tuple[Event, ...]) -> None:
        turn, activation = work_left(events)
        self.count += len(events)
        self.time = events[-1].time
        self.turn = self.turn if turn is None else turn
        self.activation = self.activation if activation is None else activation


class Applier:
    """Applies batches, then `finish`. What it has looked up is true until the transaction ends or a part is undone.

    Events are collected and written together: the batches of a step share a transaction.
    """

    __slots__ = ("_connection", "_cursor", "_fences", "_growths", "_rows", "_sessions")

    def __init__(self, connection: apsw.Connection, cursor: apsw.Cursor) -> None:
        self._connection = connection
        self._cursor = cursor
        self._sessions: dict[SessionId, tuple[int, str] | None] = {}
        self._fences: dict[str, int] = {}
        self._growths: dict[int, _Growth] = {}
        self._rows: list[Row] = []

    def apply(self, batch: Batch) -> Committed:
        """The batch is written, but for events, which `finish` writes.

        Raises: LeaseLost, AlreadyExists, IdConflict, ClaimConflict or StoreFailure, with part of it written; TypeError
        and ValueError for values that cannot be stored; apsw errors.
        """
        for root, fence in batch.fences:
            self._check_fence(root, fence)
        result = Committed()
        for op in batch.ops:
            self._apply(op, batch, result)
        return result

    def finish(self) -> None:
        """The events of all applied batches are written. Raises: StoreFailure for a gap in a log; apsw errors."""
        for growth in self._growths.values():
            values = (growth.key, growth.first, growth.count, growth.time)
            if growth.turn is None and growth.activation is None:
                run(self._cursor, SQL["extend_log"], values)
            else:
                run(self._cursor, SQL["extend_log_and_work"], (*values, growth.turn, growth.activation))
            if self._connection.changes() != 1:
                length = self._one("length", growth.key)
                raise log_gap(growth.op, length and length[0])
        if self._rows:
            run_many(self._cursor, SQL["append_event"], self._rows)
        self._growths.clear()
        self._rows.clear()

    def _apply(self, op: Op, batch: Batch, result: Committed) -> None:
        match op:
            case Append():
                self._append(op, batch)
            case Insert():
                self._insert(op, result)
            case Claim():
                self._claim(op, batch)
            case Create():
                self._create(op, batch)
            case Withdraw():
                self._update("withdraw_message", op.session_id, op.ids, (op.reason,))
            case Replace():
                self._replace(op, result)
            case Park():
                self._update("park_message", op.session_id, op.ids, ())
            case Hush():
                self._update("hush_message", op.session_id, op.ids, ())
            case Unpark():
                found = self._find(op.session_id)
                if found is not None:
                    run(self._cursor, SQL["unpark_messages"], (found[0],))
            case Settle():
                self.finish()  # what it asks about may end in this very transaction
                if self._one("is_busy", self._guarded(op.session_id, batch), op.session_id) is not None:
                    raise not_quiet(op.session_id)
            case _:
                assert_never(op)

    def _one(self, name: str, *values: int | str | bytes | None) -> Row | None:
        rows = run(self._cursor, SQL[name], values)
        return rows[0] if rows else None

    def _check_fence(self, root: SessionId, fence: int) -> None:
        stored = self._fences.get(root)
        if stored is None:
            row = self._one("fence", root)
            stored = self._fences[root] = 0 if row is None else cast("int", row[0])
        check_fence(root, stored, fence)

    def _find(self, id: SessionId) -> tuple[int, str] | None:
        try:
            return self._sessions[id]
        except KeyError:
            found = self._sessions[id] = cast("tuple[int, str] | None", self._one("find_session", id))
            return found

    def _guarded(self, id: SessionId, batch: Batch) -> int:
        """The key of a session whose tree the batch holds."""
        found = self._find(id)
        if found is None:
            raise session_unknown(id)
        key, root = found
        check_guard(id, root, batch)
        return key

    def _create(self, op: Create, batch: Batch) -> None:
        header = op.header
        check_guard(header.id, op.root, batch)
        is_delegated = header.origin is not None
        row = self._one(
            "create_session",
            *(header.id, op.root, header.parent_session, is_delegated, header.created_at, encode(header)),
        )
        if row is None:
            raise session_exists(header.id)
        self._sessions[header.id] = (cast("int", row[0]), op.root)

    def _append(self, op: Append, batch: Batch) -> None:
        events = op.events
        if not events:
            return
        key = self._guarded(op.session_id, batch)
        check_seqs(op.session_id, events)
        growth = self._growths.get(key)
        if growth is None:
            growth = self._growths[key] = _Growth(key, op)
        elif events[0].seq != growth.first + growth.count:
            raise log_gap(op, growth.first + growth.count)
        growth.add(events)
        self._rows.extend(self._event_rows(key, events))

    def _event_rows(self, key: int, events: tuple[Event, ...]) -> Iterator[Row]:
        for event in events:
            data = event.data
            body, stored = None, encode_payload(data)
            if type(data) is RequestHeaderChange and len(stored) >= _SHARED_FROM:
                body, stored = self._share(stored), None
            yield key, event.seq, event.time, type_of(data), type(data) is Opaque, body, stored

    def _share(self, data: bytes) -> int:
        hash = sha256(data).digest()
        row = self._one("find_body", hash) or self._one("add_body", hash, data)
        assert row is not None
        return cast("int", row[0])

    def _insert(self, op: Insert, result: Committed) -> None:
        delivery = op.delivery
        found = self._find(delivery.session_id)
        if found is None:
            result.undelivered.add(delivery.id)
            return
        row = self._one("prepend_message" if op.prepend else "append_message", *_message_values(delivery, found[0]))
        if row is not None:
            result.orders[delivery.id] = cast("int", row[0])
            return
        session, order, state, kind, data = cast(
            "tuple[int, int, str, str, bytes]", self._one("find_message", delivery.id)
        )
        if session != found[0] or kind != delivery.kind or not _is_equal(data, delivery.message):
            raise id_conflict(delivery.id)
        result.repeated.add(delivery.id)
        if state == "pending":
            result.orders[delivery.id] = order

    def _claim(self, op: Claim, batch: Batch) -> None:
        self._guarded(op.session_id, batch)
        changed = self._update("claim_message", op.session_id, op.ids, (op.turn,))
        if changed != len(op.ids):
            raise claim_conflict(op, changed)

    def _update(self, name: str, id: SessionId, messages: tuple[str, ...], values: tuple[int | str, ...]) -> int:
        """How many rows of the session the statement changed; a session that does not exist has none."""
        found = self._find(id)
        if found is None or not messages:
            return 0
        before = self._connection.total_changes()
        run_many(self._cursor, SQL[name], [(message, found[0], *values) for message in messages])
        return self._connection.total_changes() - before

    def _replace(self, op: Replace, result: Committed) -> None:
        delivery = op.delivery
        found = self._find(delivery.session_id)
        parked = self._one("is_parked", op.old)
        old = self._one("replace_message", op.old, found[0]) if found else None
        if found is None or old is None or parked is None:
            raise nothing_to_replace(op)
        order = cast("int", old[0])
        if self._one("put_message", *_message_values(delivery, found[0]), order, cast("int", parked[0])) is None:
            raise replacement_used(delivery.id)
        result.orders[delivery.id] = order


def _message_values(delivery: Delivery, key: int) -> tuple[str | int | bytes | None, ...]:
    message, usage = delivery.message, delivery.usage
    return (
        *(message.id, key, delivery.target, delivery.wake, delivery.accepted_at, message.source.kind),
        *(encode(message), None if usage is None else encode(usage), delivery.kind, delivery.log_length),
    )


def _is_equal(data: bytes, message: UserMessage) -> bool:
    try:
        return _message.decode(data) == message
    except msgspec.MsgspecError:
        return False
