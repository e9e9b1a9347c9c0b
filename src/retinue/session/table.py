"""The live sessions of a process, and their leases: creating, loading, forking and letting go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

import anyio

from retinue.base.clock import Clock
from retinue.base.ids import MessageId, SessionId
from retinue.base.scope import Undo
from retinue.errors import AlreadyExists, RetinueError, SessionNotFound
from retinue.session.mailbox import is_instruction
from retinue.session.rows import Batch, Claim, Committed, Delivery, Insert, Op, Replace, StoredRow, Unpark, Withdraw
from retinue.session.session import Hold, Observer, Session
from retinue.session.store import Outcome, SessionStore, StoreBusy
from retinue.session.transaction import Receipt, Transaction
from retinue.session.writer import Durability, Writer

__all__ = ["LEASE_RENEWAL_S", "LOOK_S", "OnArrival", "Sessions"]

OnArrival: TypeAlias = Callable[[Delivery], None]
"""Called with what is to be read now, or obeyed, by a session of a held tree that is not loaded here."""

_log = logging.getLogger("retinue")

LEASE_RENEWAL_S = 5.0
"""How often a process confirms its leases; well below half a term, so one missed renewal does no harm."""

LOOK_S, DEAF_LOOK_S = 0.9, 0.1
"""How often a process looks by itself for what others have sent, and how often if nobody can ring it."""


class Sessions:
    """Every session that is loaded in this process. One per store; all changes go through its writer."""

    def __init__(self, store: SessionStore, clock: Clock, durability: Durability = "process") -> None:
        self.store = store
        self.clock = clock
        self.writer = Writer(store, clock, durability)
        self._live: dict[SessionId, Session] = {}
        self._holds: dict[SessionId, Hold] = {}
        self._acquiring: dict[SessionId, anyio.Lock] = {}
        self._observers: dict[bool, tuple[Observer, ...]] = {False: (), True: ()}
        self._on_arrival: tuple[OnArrival, ...] = ()
        self._seen: int | None = None
        """The version of the store at the last look."""

    def __iter__(self):
        return iter(tuple(self._live.values()))

    def live(self, id: SessionId) -> Session | None:
        """The loaded session of that id."""
        return self._live.get(id)

    def transaction(self) -> Transaction:
        """A new empty transaction."""
        return Transaction(self)

    def observe(self, observer: Observer, *, durable: bool = False) -> Undo:
        """`observer` hears of every later event of every session of this process."""
        self._observers[durable] = (*self._observers[durable], observer)

        def undo() -> None:
            self._observers[durable] = tuple(x for x in self._observers[durable] if x is not observer)

        return Undo(undo)

    def observers(self, durable: bool) -> tuple[Observer, ...]:
        """Observers of all sessions."""
        return self._observers[durable]

    def publish(self, session: Session) -> None:
        """The session is in the table. Raises: AlreadyExists."""
        if session.id in self._live:
            raise AlreadyExists(f"session {session.id!r} is loaded already")
        self._live[session.id] = session

    def dropped(self, session: Session, error: RetinueError) -> None:
        """The session left the table because its batch was refused."""
        if self._live.get(session.id) is session:
            del self._live[session.id]
        session.drop(error)

    async def hold(self, root: SessionId) -> Hold:
        """This process's hold on the tree, taken now if it has none. Raises: SessionHeld."""
        hold = self._holds.get(root)
        if hold is not None and hold.is_valid:
            return hold  # without the lock, in which a thousand siblings would stand in line
        lock = self._acquiring.setdefault(root, anyio.Lock())
        async with lock:
            hold = self._holds.get(root)
            if hold is not None and not hold.is_valid:
                await self.renew()  # a new fence would shut out the sessions that are loaded under this one
            if hold is None or not hold.is_valid:
                hold = Hold(await self.store.acquire(root), self.clock)
                self._holds[root] = hold
        return hold

    async def load(self, id: SessionId) -> Session:
        """The session, loaded; its tree is held by this process.

        The lease is committed before the log is read, so nobody else writes what was read here. Raises:
        SessionNotFound, SessionHeld, CorruptSession.
        """
        live = self._live.get(id)
        if live is not None:
            return live
        await self.writer.committed()
        summary = await self.store.summary(id)
        if summary is None:
            raise SessionNotFound(f"no session {id!r} is stored here")
        hold = await self.hold(summary.root)
        while True:
            finished = self.writer.finished
            stored = await self.store.read(id)
            if finished == self.writer.finished:
                break
        live = self._live.get(id)
        if live is not None:
            return live
        session = Session(stored.header, stored.root, hold, events=stored.events, pending=stored.pending)
        for batch in self.writer.unfinished():
            _expect(session, batch)
        self.publish(session)
        return session

    def unload(self, session: Session) -> None:
        """The session is not loaded any more. What it submitted stays ordered."""
        if self._live.get(session.id) is session:
            del self._live[session.id]

    async def release(self, root: SessionId) -> None:
        """The tree is free for other processes, once nothing of it is loaded here; otherwise nothing happens."""
        if any(session.root == root for session in self._live.values()):
            return
        hold = self._holds.pop(root, None)
        self._acquiring.pop(root, None)
        if hold is not None:
            with anyio.move_on_after(5, shield=True):
                await self.writer.committed()
                await self._give_back(hold)

    async def _give_back(self, hold: Hold) -> None:
        """The lease is free, as far as the store can do it; one that it cannot free runs out by itself."""
        try:
            await self.store.release(hold.lease)
        except (RetinueError, StoreBusy) as error:
            _log.warning("the lease of session %s could not be given back: %s", hold.lease.root, error)

    async def renew(self) -> None:
        """Every held lease was confirmed, or is marked lost and its sessions are dropped."""
        holds = [hold for hold in self._holds.values() if not hold.lost]
        if not holds:
            return
        renewed = await self.store.renew([hold.lease for hold in holds])
        for hold, lease in zip(holds, renewed, strict=True):
            if lease is not None:
                hold.lease = lease
                continue
            hold.lost = True
            for session in [s for s in self if s.hold is hold]:
                try:
                    hold.check()
                except RetinueError as error:
                    self.dropped(session, error)

    async def confirm(self, hold: Hold) -> None:
        """Return if the tree is certainly held by this process; asked right before anything leaves it.

        A lease that ran out while the machine slept is renewed if nobody took it. Raises: LeaseLost, StoreFailure.
        """
        if not hold.is_valid:
            await self.renew()
            hold.check()

    async def keep_leases(self) -> None:
        """Renews for ever; runs as a task of whoever owns the table.

        A store that fails for a while costs nothing but certainty: whoever needs that asks `confirm`.
        """
        while True:
            await self.clock.sleep(LEASE_RENEWAL_S)
            try:
                await self.renew()
            except (RetinueError, StoreBusy) as error:
                _log.warning("leases could not be renewed, trying again in %.0f s: %s", LEASE_RENEWAL_S, error)

    # What others send

    def on_arrival(self, listener: OnArrival) -> Undo:
        """`listener` hears of what others send to sessions of held trees that are not loaded."""
        self._on_arrival = (*self._on_arrival, listener)

        def undo() -> None:
            self._on_arrival = tuple(x for x in self._on_arrival if x is not listener)

        return Undo(undo)

    def holds(self, root: SessionId) -> bool:
        """This process drives the tree, as far as it knows."""
        hold = self._holds.get(root)
        return hold is not None and not hold.lost

    def post(self, delivery: Delivery) -> Receipt:
        """The delivery is stored, and only then in the mailbox of its session, as if another process had sent it.

        So it may go to any session, whoever drives it, and the same id again has no second effect.
        """
        receipt = Receipt(self.writer)
        ops: list[Op] = [Insert(delivery)]
        if delivery.wake and is_instruction(delivery):
            ops.append(Unpark(delivery.session_id))

        def done(outcome: Outcome) -> None:
            self._take_back(delivery)
            if isinstance(outcome, Committed) and delivery.id in outcome.orders and delivery.id not in outcome.repeated:
                self._take_in(StoredRow(delivery=delivery, order=outcome.orders[delivery.id]))
            receipt.resolve(outcome)

        self.writer.submit(Batch(tuple(ops)), done)
        return receipt

    def _take_back(self, delivery: Delivery) -> None:
        """A session that was loaded while the delivery was on its way does not expect it any more."""
        live = self._live.get(delivery.session_id)
        row = None if live is None else live.mailbox.get(delivery.id)
        if live is not None and row is not None and row.order is None:
            live.mailbox.withdraw((delivery.id,))

    async def look(self) -> None:
        """What other processes have sent to held trees is in its mailboxes, and has woken whom it should.

        Raises: StoreFailure; then the next look finds it.
        """
        roots = [root for root, hold in self._holds.items() if not hold.lost]
        while True:
            finished = self.writer.finished
            arrivals = await self.store.arrivals(roots, self._seen)
            if finished == self.writer.finished:
                break
        self._seen = arrivals.version
        unfinished = set(_named(self.writer.unfinished()))
        for row in arrivals.rows:
            if row.delivery.id not in unfinished:
                self._take_in(row)

    def look_afresh(self) -> None:
        """The next look finds everything that is pending, as if another process had just sent it."""
        self._seen = None

    def _take_in(self, row: StoredRow) -> None:
        delivery = row.delivery
        session = self._live.get(delivery.session_id)
        if session is None:
            for listener in self._on_arrival if row.is_due else ():
                listener(delivery)
        elif delivery.id not in session.mailbox:
            session.mailbox.add(delivery, order=row.order, parked=row.parked)
            if delivery.wake and is_instruction(delivery):
                session.mailbox.unpark()
            if session.driver is not None:
                session.driver.delivered(delivery)

    async def keep_looking(self) -> None:
        """Looks for ever, when it is rung and by itself; runs as a task of whoever owns the table."""
        rung = anyio.Event()

        def heard() -> None:
            rung.set()

        async def wait() -> None:
            await self.clock.sleep(pause_s)
            rung.set()

        pause_s = LOOK_S if self.store.listen(heard) else DEAF_LOOK_S
        while True:
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await rung.wait()
                group.cancel_scope.cancel()
            rung = anyio.Event()
            try:
                await self.look()
            except (RetinueError, StoreBusy) as error:
                _log.warning("what others have sent could not be looked for, trying again: %s", error)

    async def aclose(self) -> None:
        """Everything submitted is stored or refused, and every lease is free as far as the store can do it."""
        with anyio.CancelScope(shield=True):
            await self.writer.aclose()
            for root in list(self._holds):
                await self._give_back(self._holds.pop(root))
            self._live.clear()


def _expect(session: Session, batch: Batch) -> None:
    """The rows that a batch on its way brings to the session are in its mailbox, as if it had been loaded before."""
    for op in batch.ops:
        if type(op) is Insert and op.delivery.session_id == session.id:
            session.mailbox.add(op.delivery, prepend=op.prepend)
        elif type(op) is Unpark and op.session_id == session.id:
            session.mailbox.unpark()


def _named(batches: Iterable[Batch]) -> Iterable[MessageId]:
    """The messages that these batches insert, claim or withdraw."""
    for batch in batches:
        for op in batch.ops:
            match op:
                case Insert():
                    yield op.delivery.id
                case Claim() | Withdraw():
                    yield from op.ids
                case Replace():
                    yield from (op.old, op.delivery.id)
                case _:
                    pass
