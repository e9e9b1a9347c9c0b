"""A store that fails on purpose: it refuses or delays chosen batches, or dies and takes nothing any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from retinue.base.ids import SessionId
from retinue.errors import StoreFailure
from retinue.session.rows import Append, Batch, StoredRow
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
from retinue.testing.gate import Gate

__all__ = ["FaultyStore", "When", "appends"]

When: TypeAlias = int | Callable[[Batch], bool]
"""The k-th batch of this store (from 1), or the next one that satisfies the predicate."""


def appends(type_name: str) -> Callable[[Batch], bool]:
    """A predicate for batches that append an event of this type."""

    def matches(batch: Batch) -> bool:
        events = [event for op in batch.ops if isinstance(op, Append) for event in op.events]
        return any(event.type == type_name for event in events)

    return matches


@dataclass(slots=True, eq=False)
class _Fault:
    when: When
    effect: Exception | Gate
    lasts: bool = False

    def hits(self, batch: Batch, number: int) -> bool:
        if isinstance(self.when, int):
            return number >= self.when if self.lasts else number == self.when
        return self.when(batch)


class FaultyStore:
    """A SessionStore that hands everything on to `inner`, except where it was told to fail."""

    def __init__(self, inner: SessionStore) -> None:
        self.inner = inner
        self.batches: list[Batch] = []
        """Every batch that was tried, in order."""
        self._faults: list[_Fault] = []

    def refuse(self, when: When, error: Exception | None = None) -> None:
        """That one batch is refused with `error`; by default a StoreFailure. Nothing of it is stored."""
        self._faults.append(_Fault(when, error or StoreFailure("scripted failure of the store")))

    def die(self, when: When) -> None:
        """That batch and every later one is refused: for the disk, the process ended before it."""
        self._faults.append(_Fault(when, StoreFailure("the store died here"), lasts=True))

    def hold(self, when: When, gate: Gate) -> None:
        """That batch, and those that share its transaction, wait for the gate; later ones wait behind them."""
        self._faults.append(_Fault(when, gate))

    @property
    def unspent(self) -> int:
        """Refusals and holds that have not come true yet."""
        return sum(not fault.lasts for fault in self._faults)

    @property
    def is_dead(self) -> bool:
        """`die` has come true."""
        return any(
            fault.lasts and isinstance(fault.when, int) and len(self.batches) >= fault.when for fault in self._faults
        )

    def begin(self, batches: Sequence[Batch], done: Callable[[Sequence[Outcome]], None]) -> None:
        """See SessionStore."""
        first = len(self.batches) + 1
        faults = [self._fault(batch, first + i) for i, batch in enumerate(batches)]
        gates = [fault.effect for fault in faults if fault is not None and isinstance(fault.effect, Gate)]
        if gates:
            self._spend(faults)
            gates[0].when_open(lambda: self._begin_late(batches, done))
            return
        refusals = {i: f.effect for i, f in enumerate(faults) if f is not None and isinstance(f.effect, Exception)}
        kept = [batch for i, batch in enumerate(batches) if i not in refusals]

        def finished(outcomes: Sequence[Outcome]) -> None:
            self.batches.extend(batches)
            self._spend(faults)
            rest = iter(outcomes)
            done([refusals[i] if i in refusals else next(rest) for i in range(len(batches))])

        if kept:
            self.inner.begin(kept, finished)
        else:
            finished(())

    def _begin_late(self, batches: Sequence[Batch], done: Callable[[Sequence[Outcome]], None]) -> None:
        try:
            self.begin(batches, done)
        except StoreBusy as busy:
            done([StoreFailure(f"the store was busy when a delayed batch came: {busy}")] * len(batches))

    def _fault(self, batch: Batch, number: int) -> _Fault | None:
        for fault in self._faults:
            if fault.hits(batch, number):
                if fault.lasts:
                    fault.when = min(number, fault.when) if isinstance(fault.when, int) else number
                return fault
        return None

    def _spend(self, faults: Sequence[_Fault | None]) -> None:
        used = [fault for fault in faults if fault is not None and not fault.lasts]
        self._faults = [fault for fault in self._faults if fault not in used]

    def begin_sync(self, done: Callable[[Exception | None], None]) -> None:
        """See SessionStore."""
        self.inner.begin_sync(done)

    async def read(self, session_id: SessionId) -> StoredSession:
        """See SessionStore."""
        return await self.inner.read(session_id)

    async def read_rows(self, session_id: SessionId) -> list[StoredRow]:
        """See SessionStore."""
        return await self.inner.read_rows(session_id)

    async def summary(self, session_id: SessionId) -> SessionSummary | None:
        """See SessionStore."""
        return await self.inner.summary(session_id)

    async def resolve(self, prefix: str) -> SessionId:
        """See SessionStore."""
        return await self.inner.resolve(prefix)

    async def roots(self) -> list[SessionSummary]:
        """See SessionStore."""
        return await self.inner.roots()

    async def children(self, parent: SessionId) -> list[SessionSummary]:
        """See SessionStore."""
        return await self.inner.children(parent)

    async def tree(self, root: SessionId) -> list[SessionSummary]:
        """See SessionStore."""
        return await self.inner.tree(root)

    async def read_tree(self, root: SessionId) -> list[SessionRecord]:
        """See SessionStore."""
        return await self.inner.read_tree(root)

    async def owing(self, root: SessionId) -> list[SessionId]:
        """See SessionStore."""
        return await self.inner.owing(root)

    async def arrivals(self, roots: Sequence[SessionId], seen: int | None) -> Arrivals:
        """See SessionStore."""
        return await self.inner.arrivals(roots, seen)

    def listen(self, heard: Callable[[], None]) -> bool:
        """See SessionStore."""
        return self.inner.listen(heard)

    async def ring(self, root: SessionId) -> str | None:
        """See SessionStore."""
        return await self.inner.ring(root)

    async def acquire(self, root: SessionId) -> Lease:
        """See SessionStore."""
        return await self.inner.acquire(root)

    async def renew(self, leases: Sequence[Lease]) -> list[Lease | None]:
        """See SessionStore."""
        return await self.inner.renew(leases)

    async def release(self, lease: Lease) -> None:
        """See SessionStore."""
        await self.inner.release(lease)

    async def remove(self, lease: Lease) -> list[SessionId]:
        """See SessionStore."""
        return await self.inner.remove(lease)

    async def aclose(self) -> None:
        """See SessionStore."""
        await self.inner.aclose()
