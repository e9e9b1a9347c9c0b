"""A loaded session: its log, folds and mailbox in memory. A cache of the store, and the only door to change it.

It is changed through a `Transaction` alone, which orders the durable change first, then changes memory, then tells
observers. A session whose batch was refused is dropped: it answers every later use with that failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from retinue.base.clock import Clock
from retinue.base.ids import SessionId
from retinue.base.scope import Undo
from retinue.errors import BadInput, LeaseLost, RetinueError
from retinue.session.events import Event, Payload, SessionHeader
from retinue.session.folds import History, Turns
from retinue.session.mailbox import Mailbox, PendingRow
from retinue.session.rows import Delivery, StoredRow
from retinue.session.store import Lease

__all__ = ["Driver", "Hold", "Observer", "Session"]

Observer: TypeAlias = Callable[["Session", Sequence[Event]], None]
"""Called with events of one session, in order. It must not change that session."""

_log = logging.getLogger("retinue")


class Driver(Protocol):
    """Who drives a loaded session. All calls are synchronous, made between submit and return."""

    def admit(self, delivery: Delivery) -> Delivery:
        """The delivery as it shall be inserted. Raises: AgentClosing if none is taken any more."""
        ...

    def delivered(self, delivery: Delivery) -> None:
        """The delivery is in the mailbox."""
        ...

    def discarded(self, rows: Sequence[PendingRow], reason: str) -> None:
        """These rows left the mailbox unread."""
        ...

    def failed(self, error: RetinueError) -> None:
        """A batch of the session was refused: memory and store may differ, so the session is dropped."""
        ...


class Hold:
    """This process's hold on one tree: the lease as it was last confirmed. Shared by all sessions of the tree."""

    __slots__ = ("_clock", "lease", "lost")

    def __init__(self, lease: Lease, clock: Clock) -> None:
        self.lease = lease
        self.lost = False
        self._clock = clock

    @property
    def is_valid(self) -> bool:
        """The lease is certainly still ours, by our own clock."""
        return not self.lost and self._clock.elapsed_s() < self.lease.valid_until_s

    def check(self) -> None:
        """Return if the lease is certainly still ours. Raises: LeaseLost."""
        if not self.is_valid:
            raise LeaseLost(
                f"the lease of session {self.lease.root!r} is no longer certain to be held by this process; "
                "another process may drive it now"
            )


class Session:
    """One session. Create it through `Sessions`; read it freely; change it with a `Transaction`."""

    def __init__(
        self,
        header: SessionHeader,
        root: SessionId,
        hold: Hold,
        *,
        events: Iterable[Event] = (),
        pending: Iterable[StoredRow] = (),
    ) -> None:
        self.header = header
        self.id: SessionId = header.id
        """The session's id, which is also its agent's."""
        self.root = root
        self.hold = hold
        self.events: list[Event] = []
        self.history = History()
        self.turns = Turns(header.id)
        self.mailbox = Mailbox(pending)
        self.driver: Driver | None = None
        self.failure: RetinueError | None = None
        self.is_new = False
        """Its creating batch has no outcome yet."""
        self._observers: dict[bool, tuple[Observer, ...]] = {False: (), True: ()}
        self._publishing = False
        for event in events:
            self._fold(event)

    @property
    def next_seq(self) -> int:
        """The seq the next event gets."""
        return len(self.events)

    def _fold(self, event: Event) -> None:
        self.turns.apply(event)
        self.history.apply(event)
        self.events.append(event)

    def observe(self, observer: Observer, *, durable: bool = False) -> Undo:
        """`observer` hears of every later event: when it has its place, or, `durable`, when it is committed."""
        self._observers[durable] = (*self._observers[durable], observer)

        def undo() -> None:
            self._observers[durable] = tuple(x for x in self._observers[durable] if x is not observer)

        return Undo(undo)

    def check(self) -> None:
        """Return if the session can be changed. Raises: the failure that dropped it, LeaseLost.

        A lease that is only no longer certain does not stop a change: the store compares its fence in every batch.
        """
        if self.failure is not None:
            raise self.failure
        if self.hold.lost:
            self.hold.check()

    def check_append(self) -> None:
        """Return if events can be added now. Raises: BadInput from inside an observer of the session's events."""
        if self._publishing:
            raise BadInput(f"the log of session {self.id!r} cannot grow from inside one of its observers")

    # For Transaction and Sessions.

    def seal(self, payloads: Sequence[Payload], time_ms: int, offset: int) -> tuple[Event, ...]:
        """The events that `payloads` will be, `offset` places after the end of the log."""
        first = len(self.events) + offset
        return tuple([Event(first + i, time_ms, data) for i, data in enumerate(payloads)])

    def extend(self, events: Sequence[Event]) -> None:
        """`events` are part of the log in memory."""
        for event in events:
            self._fold(event)

    def publish(self, events: Sequence[Event], *, durable: bool, shared: tuple[Observer, ...]) -> None:
        """Every observer heard of `events`; what they raise is logged."""
        observers = shared + self._observers[durable]
        if not observers or not events:
            return
        self._publishing, before = True, self._publishing
        try:
            for observer in observers:
                try:
                    observer(self, events)
                except Exception:
                    _log.exception("an observer of session %s failed", self.id)
        finally:
            self._publishing = before

    def drop(self, error: RetinueError) -> None:
        """The session is of no use any more; its driver knows why."""
        if self.failure is None:
            self.failure = error
            if self.driver is not None:
                self.driver.failed(error)
