"""A store whose commits and reads complete when a schedule says so, and some of whose batches are refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from retinue.base.ids import SessionId
from retinue.errors import StoreFailure
from retinue.session.events import Descriptor
from retinue.session.rows import Append, Batch, Create, Insert, Settle, StoredRow
from retinue.session.store import (
    Arrivals,
    Lease,
    Outcome,
    SessionRecord,
    SessionStore,
    SessionSummary,
    StoreBusy,
    StoredSession,
)
from retinue.testing.schedules.schedule import Schedule

__all__ = ["Names", "ScheduledStore"]

T = TypeVar("T")

_REFUSED = 0.03
"""How often a batch is refused while refusals are left."""


class Names:
    """Sessions as a reader knows them: a child by its label, any other by `root` or its id."""

    def __init__(self) -> None:
        self._names: dict[SessionId, str] = {}

    def of(self, id: SessionId) -> str:
        """The session's name."""
        return self._names.get(id, id)

    def learn(self, batch: Batch) -> None:
        """Sessions that the batch creates are known by what it says of them."""
        for op in batch.ops:
            if isinstance(op, Create) and op.header.id not in self._names:
                self._name(op.header.id, _label(batch, op.header.id) or "root")

    def _name(self, id: SessionId, name: str) -> None:
        number = 1 + sum(other == name or other.startswith(f"{name} #") for other in self._names.values())
        self._names[id] = name if number == 1 else f"{name} #{number}"


def _label(batch: Batch, id: SessionId) -> str | None:
    events = (event for op in batch.ops if isinstance(op, Append) and op.session_id == id for event in op.events)
    return next((event.data.label for event in events if isinstance(event.data, Descriptor)), None)


class ScheduledStore:
    """A SessionStore over `inner`. A commit is applied at once or on completion, a read before or after its wait."""

    def __init__(self, inner: SessionStore, schedule: Schedule, names: Names, *, refusals: int = 0) -> None:
        """At most `refusals` batches fail with a StoreFailure, as on a disk that fails for a moment."""
        self.inner = inner
        self._schedule = schedule
        self._names = names
        self._refusals = refusals

    def begin(self, batches: Sequence[Batch], done: Callable[[Sequence[Outcome]], None]) -> None:
        """See SessionStore."""
        what = f"commit {'; '.join(self._outline(batch) for batch in batches)}"
        if self._schedule.chance(0.5):
            outcomes = self._apply(batches)
            self._schedule.defer("store", what, lambda: done(outcomes))
        else:
            self._schedule.defer("store", what, lambda: done(self._apply(batches)))

    def _apply(self, batches: Sequence[Batch]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for batch in batches:
            if self._refusals and self._schedule.chance(_REFUSED):
                self._refusals -= 1
                self._schedule.trace.append(f"store: refuses {self._outline(batch)}")
                outcomes.append(StoreFailure("refused by the schedule"))
                continue
            try:
                self.inner.begin([batch], outcomes.extend)
            except StoreBusy as busy:
                outcomes.append(StoreFailure(f"the store was busy when a delayed batch came: {busy}"))
        return outcomes

    def _outline(self, batch: Batch) -> str:
        self._names.learn(batch)
        parts: list[str] = []
        for op in batch.ops:
            match op:
                case Append():
                    parts.append(f"{self._names.of(op.session_id)} {', '.join(event.type for event in op.events)}")
                case Insert():
                    source = op.delivery.message.source.kind
                    parts.append(f"message of {source} to {self._names.of(op.delivery.session_id)}")
                case Settle():
                    parts.append("settle")
                case _:
                    pass
        return " + ".join(parts) or "rows"

    async def _read(self, what: str, read: Callable[[], Awaitable[T]]) -> T:
        if self._schedule.chance(0.5):
            result = await read()
            await self._schedule.pause("store", what)
            return result
        await self._schedule.pause("store", what)
        return await read()

    def begin_sync(self, done: Callable[[Exception | None], None]) -> None:
        """See SessionStore."""

        def synced(error: Exception | None) -> None:
            self._schedule.defer("store", "sync", lambda: done(error))

        self.inner.begin_sync(synced)

    async def read(self, session_id: SessionId) -> StoredSession:
        """See SessionStore."""
        return await self._read(f"read {self._names.of(session_id)}", lambda: self.inner.read(session_id))

    async def read_rows(self, session_id: SessionId) -> list[StoredRow]:
        """See SessionStore."""
        return await self._read(f"read rows of {self._names.of(session_id)}", lambda: self.inner.read_rows(session_id))

    async def summary(self, session_id: SessionId) -> SessionSummary | None:
        """See SessionStore."""
        return await self._read(
            f"read the summary of {self._names.of(session_id)}", lambda: self.inner.summary(session_id)
        )

    async def resolve(self, prefix: str) -> SessionId:
        """See SessionStore."""
        return await self._read("resolve", lambda: self.inner.resolve(prefix))

    async def roots(self) -> list[SessionSummary]:
        """See SessionStore."""
        return await self._read("list roots", self.inner.roots)

    async def children(self, parent: SessionId) -> list[SessionSummary]:
        """See SessionStore."""
        return await self._read(f"list children of {self._names.of(parent)}", lambda: self.inner.children(parent))

    async def tree(self, root: SessionId) -> list[SessionSummary]:
        """See SessionStore."""
        return await self._read("list a tree", lambda: self.inner.tree(root))

    async def read_tree(self, root: SessionId) -> list[SessionRecord]:
        """See SessionStore."""
        return await self._read("read a tree", lambda: self.inner.read_tree(root))

    async def owing(self, root: SessionId) -> list[SessionId]:
        """See SessionStore."""
        return await self._read("list who owes work", lambda: self.inner.owing(root))

    async def arrivals(self, roots: Sequence[SessionId], seen: int | None) -> Arrivals:
        """See SessionStore. At once: that others are looked for, for ever, is no sign that anything goes on."""
        return await self.inner.arrivals(roots, seen)

    def listen(self, heard: Callable[[], None]) -> bool:
        """See SessionStore."""
        return self.inner.listen(heard)

    async def ring(self, root: SessionId) -> str | None:
        """See SessionStore."""
        return await self.inner.ring(root)

    async def acquire(self, root: SessionId) -> Lease:
        """See SessionStore."""
        await self._schedule.pause("store", "lease")
        return await self.inner.acquire(root)

    async def renew(self, leases: Sequence[Lease]) -> list[Lease | None]:
        """See SessionStore. At once: that leases are renewed for ever is no sign that anything goes on."""
        return await self.inner.renew(leases)

    async def release(self, lease: Lease) -> None:
        """See SessionStore."""
        await self._schedule.pause("store", "release")
        await self.inner.release(lease)

    async def remove(self, lease: Lease) -> list[SessionId]:
        """See SessionStore."""
        await self._schedule.pause("store", "remove a tree")
        return await self.inner.remove(lease)

    async def aclose(self) -> None:
        """See SessionStore."""
        await self.inner.aclose()
