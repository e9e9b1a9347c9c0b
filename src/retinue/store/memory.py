"""A store that keeps its promises only as long as the process: for tests, with the semantics of the durable ones.

Values are kept in their stored form, so that what cannot be written or read back is found here too. Two stores that
share a `MemoryHome` are two processes with one database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from retinue.base.clock import Clock
from retinue.base.ids import SessionId
from retinue.errors import CorruptSession, RetinueError, StoreFailure
from retinue.session.rows import Batch, StoredRow
from retinue.session.store import Arrivals, Lease, Outcome, SessionRecord, SessionSummary, StoreBusy, StoredSession
from retinue.store._decode import (
    RowColumns,
    decode_arrivals,
    decode_header,
    decode_log,
    decode_row,
    report_undecodable,
)
from retinue.store._memory import Changes, LeaseRecord, MessageRecord, SessionTable, Tables
from retinue.store._rules import (
    VALUE_ERRORS,
    check_prefix,
    lease_lost,
    refusal,
    resolved,
    session_held,
    session_not_found,
    tree_not_found,
)

__all__ = ["MEMORY_LEASE_TERM_S", "MemoryHome", "MemoryStore"]

MEMORY_LEASE_TERM_S = 30.0


class MemoryHome:
    """What the stores of one home share: the tables, and which owners live."""

    def __init__(self) -> None:
        self.tables = Tables()
        self.living: set[str] = set()
        self.bells: dict[str, Callable[[], None]] = {}
        """What each owner does when it is rung."""
        self.writes = 0
        """How often something was stored."""
        self.locked_by: str | None = None
        """While this is set, every write finds the database locked by that process."""
        self._names = count(1)

    def new_owner(self) -> str:
        """The name of a new living owner."""
        name = f"owner-{next(self._names)}"
        self.living.add(name)
        return name


class MemoryStore:
    """Sessions in memory."""

    def __init__(self, clock: Clock, home: MemoryHome | None = None) -> None:
        self.home = home or MemoryHome()
        self._clock = clock
        self._owner = self.home.new_owner()
        self._closed = False

    def kill(self) -> None:
        """The process of this store is dead: it releases nothing, and nothing of it can be used any more."""
        self._closed = True
        self.home.bells.pop(self._owner, None)
        self.home.living.discard(self._owner)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFailure("the store in memory is closed")

    # Writing.

    def begin(self, batches: Sequence[Batch], done: Callable[[Sequence[Outcome]], None]) -> None:
        """See the contract. The outcomes are there, and `done` was called, when this returns."""
        self._check_open()
        if self.home.locked_by is not None:
            raise StoreBusy(self.home.locked_by)
        self.home.writes += 1
        done([self._apply(batch) for batch in batches])

    def _apply(self, batch: Batch) -> Outcome:
        changes = Changes(self.home.tables)
        try:
            return changes.apply(batch)
        except (RetinueError, *VALUE_ERRORS) as error:
            changes.undo()
            return refusal(error)

    def begin_sync(self, done: Callable[[Exception | None], None]) -> None:
        """See the contract; there is no disk, so it is done with the loop's next step."""
        self._check_open()
        asyncio.get_running_loop().call_soon(done, None)

    # Reading.

    def _session(self, id: SessionId) -> SessionTable:
        self._check_open()
        record = self.home.tables.sessions.get(id)
        if record is None:
            raise session_not_found(id)
        return record

    async def read(self, session_id: SessionId) -> StoredSession:
        """See the contract."""
        record = self._session(session_id)
        return StoredSession(
            header=decode_header(session_id, record.header),
            root=record.root,
            events=decode_log(session_id, record.events, len(record.events)),
            pending=_stored_rows(record, (row for row in record.messages.values() if row.state == "pending")),
        )

    async def read_rows(self, session_id: SessionId) -> list[StoredRow]:
        """See the contract."""
        record = self._session(session_id)
        return _stored_rows(record, record.messages.values())

    async def summary(self, session_id: SessionId) -> SessionSummary | None:
        """See the contract."""
        self._check_open()
        record = self.home.tables.sessions.get(session_id)
        return None if record is None else _summary(record)

    async def resolve(self, prefix: str) -> SessionId:
        """See the contract."""
        self._check_open()
        check_prefix(prefix)
        return resolved(prefix, sorted(id for id in self.home.tables.sessions if id.startswith(prefix)))

    async def roots(self) -> list[SessionSummary]:
        """See the contract."""
        roots = [record for record in self.home.tables.sessions.values() if not record.is_delegated]
        return self._listing(sorted(roots, key=lambda root: (-root.created_at, root.id)))

    async def children(self, parent: SessionId) -> list[SessionSummary]:
        """See the contract."""
        return self._listing(record for record in self.home.tables.sessions.values() if record.parent == parent)

    def _listing(self, records: Iterable[SessionTable]) -> list[SessionSummary]:
        self._check_open()
        result: list[SessionSummary] = []
        for record in records:
            try:
                result.append(_summary(record))
            except CorruptSession as error:
                report_undecodable(error)
        return result

    async def tree(self, root: SessionId) -> list[SessionSummary]:
        """See the contract."""
        return self._listing(self._tree(root))

    async def read_tree(self, root: SessionId) -> list[SessionRecord]:
        """See the contract."""
        self._check_open()
        result = [
            SessionRecord(
                header=decode_header(record.id, record.header),
                events=decode_log(record.id, record.events, len(record.events)),
                rows=_stored_rows(record, record.messages.values()),
            )
            for record in self._tree(root)
        ]
        if not result:
            raise tree_not_found(root)
        return result

    def _tree(self, root: SessionId) -> list[SessionTable]:
        return [record for record in self.home.tables.sessions.values() if record.root == root]

    async def owing(self, root: SessionId) -> list[SessionId]:
        """See the contract."""
        self._check_open()
        return [record.id for record in self.home.tables.sessions.values() if record.root == root and _owes(record)]

    # Other processes.

    async def arrivals(self, roots: Sequence[SessionId], seen: int | None) -> Arrivals:
        """See the contract. What this store writes counts as well."""
        self._check_open()
        if seen == self.home.writes:
            return Arrivals((), self.home.writes)
        sessions = self.home.tables.sessions
        rows = [(id, sessions[id].messages[message]) for message, id in self.home.tables.owners.items()]
        found = [(id, _columns(row)) for id, row in rows if row.state == "pending" and sessions[id].root in roots]
        return Arrivals(decode_arrivals(found), self.home.writes)

    def listen(self, heard: Callable[[], None]) -> bool:
        """See the contract."""
        self._check_open()
        self.home.bells[self._owner] = heard
        return True

    async def ring(self, root: SessionId) -> str | None:
        """See the contract."""
        self._check_open()
        lease = self.home.tables.leases.get(root, LeaseRecord())
        if lease.owner not in self.home.living or self._now_ms() >= lease.expires_at:
            return None
        self.home.bells.get(lease.owner or "", lambda: None)()
        return f"process {lease.owner!r}"

    # Leases.

    async def acquire(self, root: SessionId) -> Lease:
        """See the contract."""
        self._check_open()
        valid_until_s = self._clock.elapsed_s() + MEMORY_LEASE_TERM_S / 2
        now = self._now_ms()
        leases = self.home.tables.leases
        lease = leases.get(root, LeaseRecord())
        if lease.owner not in {None, self._owner} and lease.owner in self.home.living and now < lease.expires_at:
            raise session_held(root, f"process {lease.owner!r}", lease.expires_at - now)
        leases[root] = LeaseRecord(lease.fence + 1, self._owner, self._expiry())
        return Lease(root=root, fence=lease.fence + 1, owner=self._owner, valid_until_s=valid_until_s)

    async def renew(self, leases: Sequence[Lease]) -> list[Lease | None]:
        """See the contract."""
        self._check_open()
        return [self._renewed(lease) for lease in leases]

    def _renewed(self, lease: Lease) -> Lease | None:
        if not self._holds(lease):
            return None
        self.home.tables.leases[lease.root] = LeaseRecord(lease.fence, lease.owner, self._expiry())
        valid_until_s = self._clock.elapsed_s() + MEMORY_LEASE_TERM_S / 2
        return Lease(root=lease.root, fence=lease.fence, owner=lease.owner, valid_until_s=valid_until_s)

    def _holds(self, lease: Lease) -> bool:
        stored = self.home.tables.leases.get(lease.root, LeaseRecord())
        return lease.owner == self._owner == stored.owner and lease.fence == stored.fence

    def _expiry(self) -> int:
        return self._now_ms() + int(MEMORY_LEASE_TERM_S * 1000)

    def _now_ms(self) -> int:
        return int(self._clock.elapsed_s() * 1000)

    async def release(self, lease: Lease) -> None:
        """See the contract."""
        self._check_open()
        if self._holds(lease):
            self.home.tables.leases[lease.root] = LeaseRecord(lease.fence + 1)

    async def remove(self, lease: Lease) -> list[SessionId]:
        """See the contract."""
        self._check_open()
        if not self._holds(lease):
            raise lease_lost(lease.root)
        records = self._tree(lease.root)
        if not records:
            raise tree_not_found(lease.root)
        for record in records:
            del self.home.tables.sessions[record.id]
            for message in record.messages:
                del self.home.tables.owners[message]
        return [record.id for record in records]

    async def aclose(self) -> None:
        """See the contract. The home keeps what is stored."""
        if self._closed:
            return
        for root, lease in self.home.tables.leases.items():
            if lease.owner == self._owner:
                self.home.tables.leases[root] = LeaseRecord(lease.fence + 1)
        self.kill()


def _owes(record: SessionTable) -> bool:
    is_open = record.open_turn is not None or record.open_activation is not None
    return is_open or any(map(_is_runnable, record.messages.values()))


def _is_runnable(row: MessageRecord) -> bool:
    return row.state == "pending" and row.wake and not row.parked


def _stored_rows(record: SessionTable, rows: Iterable[MessageRecord]) -> list[StoredRow]:
    return [decode_row(record.id, _columns(row)) for row in sorted(rows, key=lambda row: row.order)]


def _columns(r: MessageRecord) -> RowColumns:
    stands = (r.id, r.order, r.state, r.target, r.wake, r.parked, r.accepted_at, r.turn, r.reason)
    return (*stands, r.data, r.usage, r.kind, r.log_length)


def _summary(record: SessionTable) -> SessionSummary:
    return SessionSummary(
        header=decode_header(record.id, record.header),
        root=record.root,
        events=len(record.events),
        last_event_at=record.last_event_at,
        open_turn=record.open_turn,
        pending=sum(row.state == "pending" and row.kind == "message" for row in record.messages.values()),
    )
