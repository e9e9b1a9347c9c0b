"""The contract of a store of sessions. `tests/store/contract.py` holds every implementation to it.

Durable state is two things in one database: append-only logs and mailbox rows. A store also keeps the lease of each
tree. It decides nothing about agents: it applies batches, refuses what breaks their conditions, and reads back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from retinue.base.ids import SessionId
from retinue.session.events import Event, SessionHeader
from retinue.session.rows import Batch, Committed, StoredRow

__all__ = [
    "Arrivals",
    "Lease",
    "Outcome",
    "SessionRecord",
    "SessionStore",
    "SessionSummary",
    "StoreBusy",
    "StoredSession",
]


class StoreBusy(Exception):
    """Another process holds the write lock just now; nothing was applied, try again in a moment."""

    def __init__(self, holder: str | None = None) -> None:
        super().__init__(holder or "another process")
        self.holder = holder


class Lease(Struct, frozen=True, kw_only=True):
    """The right to drive one tree. `fence` grows with each change of owner; `valid_until_s` is on the elapsed clock."""

    root: SessionId
    fence: int
    owner: str
    valid_until_s: float


class StoredSession(Struct, frozen=True, kw_only=True):
    """A session as it is stored: its whole log and the rows that are still pending, in order."""

    header: SessionHeader
    root: SessionId
    events: list[Event]
    pending: list[StoredRow]


class SessionRecord(Struct, frozen=True, kw_only=True):
    """One session with all rows ever sent to it."""

    header: SessionHeader
    events: Sequence[Event]
    rows: Sequence[StoredRow]


class SessionSummary(Struct, frozen=True, kw_only=True):
    """One line about a session, for listings."""

    header: SessionHeader
    root: SessionId
    events: int
    """Length of the log."""
    last_event_at: int
    """Epoch milliseconds; the creation time of an empty log."""
    open_turn: int | None
    pending: int


class Arrivals(Struct, frozen=True):
    """Pending rows, in the order in which they were stored, and the version of the store that was looked at."""

    rows: tuple[StoredRow, ...]
    version: int


Outcome: TypeAlias = Committed | Exception


class SessionStore(Protocol):
    """Applies batches and reads sessions. One instance per process and home; used from one event loop.

    Reading sees every batch whose outcome was given before. All methods that are not `begin` may be cancelled, and a
    cancelled one changed nothing that matters later.
    """

    def begin(self, batches: Sequence[Batch], done: Callable[[Sequence[Outcome]], None]) -> None:
        """`done` is called once, now or later, with one outcome per batch, in order.

        All batches share one transaction; each has a savepoint and a fence check of its own, so that a refused one
        fails no neighbour. Outcomes that are exceptions are `IdConflict`, `ClaimConflict`, `NotQuiet`, `LeaseLost`,
        `AlreadyExists` or `StoreFailure`; nothing of such a batch is stored. Not called again before `done`.
        Raises: StoreBusy if nothing was tried; `done` is not called then.
        """
        ...

    def begin_sync(self, done: Callable[[Exception | None], None]) -> None:
        """`done` is called once, later, on the loop, when all that was committed before survives a power failure."""
        ...

    async def read(self, session_id: SessionId) -> StoredSession:
        """The whole session. Raises: SessionNotFound, CorruptSession (UnknownEvent included)."""
        ...

    async def read_rows(self, session_id: SessionId) -> list[StoredRow]:
        """Every row ever sent to the session, in order, with what became of it. Raises: SessionNotFound."""
        ...

    async def summary(self, session_id: SessionId) -> SessionSummary | None:
        """One line about the session, or None if there is none."""
        ...

    async def resolve(self, prefix: str) -> SessionId:
        """The one session whose id is, or begins with, `prefix`. Raises: SessionNotFound, BadInput if several do."""
        ...

    async def roots(self) -> list[SessionSummary]:
        """All sessions that nobody delegated to, newest first."""
        ...

    async def children(self, parent: SessionId) -> list[SessionSummary]:
        """Sessions whose header names `parent`, in the order of their creation."""
        ...

    async def tree(self, root: SessionId) -> list[SessionSummary]:
        """Every session that the lease of `root` guards, in the order of their creation; none for an unknown root."""
        ...

    async def read_tree(self, root: SessionId) -> list[SessionRecord]:
        """Every session that the lease of `root` guards, whole, as they were at one moment.

        In the order of their creation, so a parent comes before its children. Raises: SessionNotFound if there is none,
        CorruptSession.
        """
        ...

    async def owing(self, root: SessionId) -> list[SessionId]:
        """The sessions of a tree that owe work: an open turn, an open activation, or a runnable row.

        A row is runnable if it is pending, wakes and is not parked.
        In the order of their creation, so a parent comes before its children.
        """
        ...

    async def arrivals(self, roots: Sequence[SessionId], seen: int | None) -> Arrivals:
        """All pending rows of these trees; or none, if no other process has written since the version `seen`.

        So it is nearly free while nobody else writes. A row that cannot be decoded is left out; it fails whoever loads
        its session.
        """
        ...

    def listen(self, heard: Callable[[], None]) -> bool:
        """`heard` is called on the loop whenever another process rings, until the store is closed.

        False if nobody can ring here: then look at `arrivals` more often. A ring carries nothing, and may be lost.
        """
        ...

    async def ring(self, root: SessionId) -> str | None:
        """Whoever drives the tree knows that it should look; the answer says who that is. None: nobody alive does."""
        ...

    async def acquire(self, root: SessionId) -> Lease:
        """This process owns the tree. `root` need not exist yet. Asking again for an own lease gives a new fence.

        Raises: SessionHeld while another living process owns it. The lease of a dead owner is taken over at once.
        """
        ...

    async def renew(self, leases: Sequence[Lease]) -> list[Lease | None]:
        """Each lease with a later `valid_until_s`, or None where it is lost."""
        ...

    async def release(self, lease: Lease) -> None:
        """Another process may own the tree now. A lease that is lost already stays as it is."""
        ...

    async def remove(self, lease: Lease) -> list[SessionId]:
        """Every session of the tree is gone, with its log and its rows; these are their ids.

        One transaction. The lease stays, so that fences never go back. Raises: LeaseLost, SessionNotFound if there is
        nothing to remove.
        """
        ...

    async def aclose(self) -> None:
        """Everything is released and on disk; the store cannot be used any more. Idempotent."""
        ...
