"""The one ordered writer of a process: batches in, group commits out.

`submit` is synchronous, gives the batch its place and is the point of no return. Everything submitted in one tick of
the loop goes into one transaction; nothing waits to fill a group. The writer knows no session: owners of batches hear
of their outcome through a callback.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

import anyio

from retinue.base.clock import Clock
from retinue.errors import StoreFailure, StoreLocked
from retinue.session.rows import Batch
from retinue.session.store import Outcome, SessionStore, StoreBusy

__all__ = ["Durability", "Writer"]

Durability: TypeAlias = Literal["process", "power"]

_log = logging.getLogger("retinue")

_GROUP = 512
"""Batches a transaction takes at most, which bounds the time the loop is held."""
_BUSY_FIRST_S, _BUSY_MAX_S = 0.002, 0.05
_BUSY_LIMIT_S = 30.0


class _Mark:
    """How far something got, and who waits for it to get further."""

    __slots__ = ("_waiting", "reached")

    def __init__(self) -> None:
        self.reached = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def advance(self, to: int) -> None:
        self.reached = to
        while self._waiting and self._waiting[0][0] <= to:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiting)

    async def wait(self, goal: int) -> None:
        if self.reached < goal:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((goal, future))
            await future


class Writer:
    """Owns the order of everything this process writes into one store."""

    def __init__(self, store: SessionStore, clock: Clock, durability: Durability = "process") -> None:
        self._store = store
        self._clock = clock
        self._durability: Durability = durability
        self._queue: deque[tuple[Batch, Callable[[Outcome], None]]] = deque()
        self._submitted = 0
        self._committed = _Mark()
        self._synced = _Mark()
        self._sync_failure: Exception | None = None
        self._in_flight: Sequence[tuple[Batch, Callable[[Outcome], None]]] = ()
        self._scheduled = False
        self._syncing = False
        self._busy_since: float | None = None
        self._busy_delay_s = _BUSY_FIRST_S

    def submit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        """The batch has its place, and `done` will be called with its outcome from the loop, never from here."""
        self._queue.append((batch, done))
        self._submitted += 1
        self._schedule()

    def unfinished(self) -> Iterator[Batch]:
        """What was submitted and has no outcome yet, in order."""
        for batch, _ in (*self._in_flight, *self._queue):
            yield batch

    @property
    def finished(self) -> int:
        """How many batches have their outcome."""
        return self._committed.reached

    def _schedule(self) -> None:
        if not (self._scheduled or self._in_flight):
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._scheduled = False
        if self._in_flight or not self._queue:
            return
        group = [self._queue.popleft() for _ in range(min(_GROUP, len(self._queue)))]
        self._in_flight = group
        try:
            self._store.begin([batch for batch, _ in group], lambda outcomes: self._written(group, outcomes))
        except StoreBusy as busy:
            self._in_flight = ()
            self._queue.extendleft(reversed(group))
            self._retry(busy)
        except Exception as error:
            self._written(group, [_as_failure(error)] * len(group))

    def _retry(self, busy: StoreBusy) -> None:
        now = self._clock.elapsed_s()
        self._busy_since = self._busy_since if self._busy_since is not None else now
        if now - self._busy_since > _BUSY_LIMIT_S:
            error = StoreLocked(
                f"the database has been locked for {_BUSY_LIMIT_S:.0f} s by {busy}; end or continue that process"
            )
            group, self._queue = list(self._queue), deque()
            self._busy_since = None
            self._in_flight = group
            self._written(group, [error] * len(group))
            return
        self._scheduled = True
        asyncio.get_running_loop().call_later(self._busy_delay_s, self._write)
        self._busy_delay_s = min(self._busy_delay_s * 2, _BUSY_MAX_S)

    def _written(self, group: Sequence[tuple[Batch, Callable[[Outcome], None]]], outcomes: Sequence[Outcome]) -> None:
        self._in_flight = ()
        self._busy_delay_s = _BUSY_FIRST_S
        self._busy_since = None
        for (_, done), outcome in zip(group, outcomes, strict=True):
            try:
                done(outcome)
            except Exception:  # one owner's fault must not keep the others from their outcomes
                _log.exception("an owner failed to take the outcome of its batch")
        self._committed.advance(self._committed.reached + len(group))
        if self._queue:
            self._schedule()

    @property
    def submitted(self) -> int:
        """How many batches were submitted so far: what to wait for, later, with `committed`."""
        return self._submitted

    async def committed(self, upto: int | None = None) -> None:
        """The first `upto` batches, or all that were submitted before this call, have their outcome.

        A batch with an outcome survives the process, or was refused. Cancelling ends the wait and nothing else.
        """
        goal = self._submitted if upto is None else upto
        if self._committed.reached < goal:
            await self._committed.wait(goal)

    async def durable(self) -> None:
        """Like `committed`; with durability `power` it also survives the machine.

        A disk that has refused once is not asked again: it may have dropped what it refused and still say yes to the
        rest. Raises: StoreFailure if the disk refused to confirm. Cancelling ends the wait and nothing else.
        """
        goal = self._submitted
        await self.committed()
        if self._durability == "process":
            return
        if self._sync_failure is None and self._synced.reached < goal:
            self._start_sync()
            await self._synced.wait(goal)
        if self._sync_failure is not None:
            raise StoreFailure(
                f"the disk did not confirm a write: {self._sync_failure}; check the disk, then start again"
            ) from self._sync_failure

    def _start_sync(self) -> None:
        if self._syncing:
            return
        self._syncing = True
        upto = self._committed.reached

        def done(error: Exception | None) -> None:
            self._syncing = False
            self._sync_failure = error
            self._synced.advance(upto if error is None else self._submitted)
            if self._synced.reached < self._committed.reached and self._synced.has_waiters:
                self._start_sync()

        try:
            self._store.begin_sync(done)
        except Exception as error:
            done(error)

    async def aclose(self) -> None:
        """Everything submitted has its outcome. Shielded, bounded by the limit for a locked database."""
        with anyio.CancelScope(shield=True):
            await self.committed()


def _as_failure(error: Exception) -> Exception:
    if isinstance(error, StoreFailure):
        return error
    failure = StoreFailure(f"the store failed: {error}")
    failure.__cause__ = error
    return failure
