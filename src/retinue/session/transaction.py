"""One batch in the making: build it from any number of sessions, submit it once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import anyio

from retinue.base.clock import Clock
from retinue.base.ids import MessageId, SessionId
from retinue.errors import RetinueError, StoreFailure
from retinue.session.events import Event, Payload, SessionHeader
from retinue.session.mailbox import PendingRow, is_instruction
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
    Settle,
    Unpark,
    Withdraw,
)
from retinue.session.session import Hold, Observer, Session
from retinue.session.store import Outcome
from retinue.session.writer import Writer

__all__ = ["Receipt", "Transaction"]


class Receipt:
    """The outcome of a submitted batch, to be awaited by whoever wants it. Dropping it is fine."""

    __slots__ = ("_future", "_writer", "outcome")

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.outcome: Outcome | None = None
        self._future: asyncio.Future[None] | None = None

    def resolve(self, outcome: Outcome) -> None:
        """The outcome is known."""
        self.outcome = outcome
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> Committed:
        """What the batch came to, once it is as durable as the configuration promises.

        The wait is shielded: submit was the point of no return. Raises: the refusal (IdConflict, ClaimConflict,
        LeaseLost, StoreFailure, ...).
        """
        with anyio.CancelScope(shield=True):
            if self.outcome is None:
                self._future = self._future or asyncio.get_running_loop().create_future()
                await self._future
            if isinstance(self.outcome, Committed):
                await self._writer.durable()
                return self.outcome
        assert isinstance(self.outcome, Exception)
        raise self.outcome


class Ledger(Protocol):
    """What a transaction needs of the table of live sessions."""

    @property
    def writer(self) -> Writer: ...

    @property
    def clock(self) -> Clock: ...

    def live(self, id: SessionId) -> Session | None:
        """The loaded session of that id."""
        ...

    def publish(self, session: Session) -> None:
        """The new session is in the table."""
        ...

    def dropped(self, session: Session, error: RetinueError) -> None:
        """The session leaves the table."""
        ...

    def observers(self, durable: bool) -> tuple[Observer, ...]:
        """Observers of all sessions."""
        ...


class Transaction:
    """Collects operations; `submit` orders them as one batch, changes memory, then tells observers.

    Building one changes nothing and may be abandoned. It must be submitted before the next await: what it holds is
    true only for this instant.
    """

    __slots__ = (
        "_appends",
        "_created",
        "_effects",
        "_gone",
        "_inserts",
        "_joined",
        "_ledger",
        "_now_ms",
        "_ops",
        "_replacements",
        "_touched",
        "_unparked",
    )

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._now_ms = ledger.clock.now_ms()
        self._ops: list[Op] = []
        self._touched: dict[SessionId, Session] = {}
        self._appends: dict[SessionId, list[Event]] = {}
        self._created: list[Session] = []
        self._inserts: list[tuple[Delivery, bool]] = []
        self._gone: list[tuple[Session, tuple[MessageId, ...], str]] = []
        self._effects: list[Callable[[], None]] = []
        self._replacements: list[Delivery] = []
        self._unparked: list[Session] = []
        self._joined: dict[MessageId, PendingRow | None] = {}

    def create(self, header: SessionHeader, root: SessionId, hold: Hold, seed: Sequence[Event] = ()) -> Session:
        """A new session with `seed` as its first events (copied, seqs from 0); live once submitted."""
        session = Session(header, root, hold)
        session.is_new = True
        self._ops.append(Create(header, root))
        self._created.append(session)
        self._touched[session.id] = session
        if seed:
            self._add_events(session, tuple(seed))
        return session

    def append(self, session: Session, *payloads: Payload) -> int:
        """The payloads continue the session's log; the answer is the seq of the first."""
        self._touched[session.id] = session
        before = self._appends.get(session.id, ())
        events = session.seal(payloads, self._now_ms, len(before))
        self._add_events(session, events)
        return events[0].seq if events else session.next_seq + len(before)

    def _add_events(self, session: Session, events: tuple[Event, ...]) -> None:
        if events:
            self._appends.setdefault(session.id, []).extend(events)
            self._ops.append(Append(session.id, events))

    def claim(self, session: Session, rows: Sequence[PendingRow], turn: int) -> None:
        """The reserved rows belong to `turn`."""
        if rows:
            self._touched[session.id] = session
            self._ops.append(Claim(session.id, tuple(row.id for row in rows), turn))
            self._effects.append(lambda: session.mailbox.claimed(rows))

    def insert(self, delivery: Delivery, *, prepend: bool = False) -> Delivery:
        """The delivery joins its session's mailbox, loaded or not; the answer is the delivery as it was admitted.

        An instruction unparks what was parked. Raises: AgentClosing if a live agent takes none any more.
        """
        live = self._ledger.live(delivery.session_id)
        if live is not None and live.driver is not None:
            delivery = live.driver.admit(delivery)
        self._ops.append(Insert(delivery, prepend))
        self._inserts.append((delivery, prepend))
        if delivery.wake and is_instruction(delivery):
            self._ops.append(Unpark(delivery.session_id))
        return delivery

    def answer(self, session: Session, kind: Kind, turn: int) -> None:
        """The session's control rows of that kind have had their effect, with `turn`; 0 if it never had one."""
        rows = session.mailbox.controls(kind)
        if turn:
            self.claim(session, rows, turn)
        else:
            self.withdraw(session, [row.id for row in rows], "done")

    def withdraw(self, session: Session, ids: Sequence[MessageId], reason: str) -> None:
        """The pending rows will never be read."""
        if ids:
            self._touched[session.id] = session
            self._ops.append(Withdraw(session.id, tuple(ids), reason))
            self._gone.append((session, tuple(ids), reason))

    def replace(self, session: Session, old: MessageId, delivery: Delivery) -> bool:
        """`delivery` takes the place of `old`; False, and no change, if that was not pending."""
        if session.mailbox.get(old) is None:
            return False

        def swap() -> None:
            row = session.mailbox.replace(old, delivery)
            if row is not None and session.driver is not None:
                session.driver.discarded((row,), "replaced")

        self._touched[session.id] = session
        self._ops.append(Replace(old, delivery))
        self._replacements.append(delivery)
        self._effects.append(swap)
        return True

    def park(self, session: Session) -> int:
        """Instructions that could start a turn are parked; the answer is how many rows are parked then."""
        rows = session.mailbox.parkable()
        if rows:
            self._touched[session.id] = session
            self._ops.append(Park(session.id, tuple(row.id for row in rows)))
            self._effects.append(lambda: session.mailbox.park(rows))
        return session.mailbox.parked + len(rows)

    def hush(self, session: Session, rows: Sequence[PendingRow]) -> None:
        """The pending rows wake nobody by themselves any more."""
        if rows:
            self._touched[session.id] = session
            self._ops.append(Hush(session.id, tuple(row.id for row in rows)))
            self._effects.append(lambda: session.mailbox.hush(rows))

    def settle(self, session: Session) -> None:
        """The batch holds only if the session has nothing to run and no child at work; else it is refused."""
        self._touched[session.id] = session
        self._ops.append(Settle(session.id))

    def submit(self) -> Receipt:
        """The batch has its place, memory agrees with it, observers know.

        Raises: LeaseLost, BadInput or the failure of a dropped session; nothing is changed in the log then.
        """
        for session in self._touched.values():
            session.check()
        for id in self._appends:
            self._touched[id].check_append()
        receipt = Receipt(self._ledger.writer)
        fences = {s.root: s.hold.lease.fence for s in self._touched.values()}
        if not self._ops:
            receipt.resolve(Committed())
            return receipt
        self._ledger.writer.submit(Batch(tuple(self._ops), tuple(fences.items())), lambda o: self._done(o, receipt))
        for session in self._created:
            self._ledger.publish(session)
        for id, events in self._appends.items():
            self._touched[id].extend(events)
        for effect in self._effects:
            effect()
        self._join_mailboxes()
        shared = self._ledger.observers(False)
        for id, events in self._appends.items():
            self._touched[id].publish(events, durable=False, shared=shared)
        self._tell_drivers()
        return receipt

    def _join_mailboxes(self) -> None:
        for delivery, prepend in self._inserts:
            live = self._ledger.live(delivery.session_id)
            if live is not None:
                if delivery.id not in live.mailbox:
                    live.mailbox.add(delivery, prepend=prepend)
                    self._joined[delivery.id] = live.mailbox.get(delivery.id)
                if delivery.wake and is_instruction(delivery) and live.mailbox.unpark():
                    self._unparked.append(live)

    def _tell_drivers(self) -> None:
        for session, ids, reason in self._gone:
            rows = session.mailbox.withdraw(ids)
            if rows and session.driver is not None:
                session.driver.discarded(rows, reason)
        for delivery, _ in self._inserts:
            live = self._ledger.live(delivery.session_id)
            if live is not None and live.driver is not None:
                live.driver.delivered(delivery)

    def _done(self, outcome: Outcome, receipt: Receipt) -> None:
        if isinstance(outcome, Committed):
            self._confirm(outcome)
        else:
            error = outcome if isinstance(outcome, RetinueError) else StoreFailure(f"the store failed: {outcome}")
            for delivery, _ in self._inserts:
                self._take_back(delivery)
            # What a refused message unparked cannot be told from what others have done since: it loads again too.
            for session in (*self._touched.values(), *self._unparked):
                self._ledger.dropped(session, error)
        receipt.resolve(outcome)

    def _confirm(self, outcome: Committed) -> None:
        for session in self._created:
            session.is_new = False
        for delivery, _ in self._inserts:
            order = outcome.orders.get(delivery.id)
            live = self._ledger.live(delivery.session_id)
            if order is None:
                self._take_back(delivery)
            elif live is not None:
                live.mailbox.ordered(delivery.id, order)
        for delivery in self._replacements:
            live = self._ledger.live(delivery.session_id)
            if live is not None:
                live.mailbox.ordered(delivery.id, outcome.orders[delivery.id])
        shared = self._ledger.observers(True)
        for id, events in self._appends.items():
            self._touched[id].publish(events, durable=True, shared=shared)

    def _take_back(self, delivery: Delivery) -> None:
        """The delivery was not stored anew, so it leaves the mailbox; a row that was there before it stays."""
        live = self._ledger.live(delivery.session_id)
        row = None if live is None else live.mailbox.get(delivery.id)
        if live is None or row is None:
            return
        # A session that was loaded meanwhile has the row from the queue: it has no order yet, or it was there before.
        is_ours = row is self._joined[delivery.id] if delivery.id in self._joined else row.order is None
        if is_ours:
            live.mailbox.withdraw((delivery.id,))
