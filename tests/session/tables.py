"""A table of sessions on a store, and whether its memory agrees with that store."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.base.ids import SessionId
from retinue.errors import (
    AgentClosing,
    RetinueError,
)
from retinue.session.events import SessionHeader
from retinue.session.mailbox import PendingRow
from retinue.session.rows import Delivery
from retinue.session.session import Session
from retinue.session.table import Sessions
from retinue.session.transaction import Receipt
from tests.store.contract import header
from tests.store.homes import Home

ROOT = SessionId("root")


class Recorder:
    """A driver that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.closing = False

    def admit(self, delivery: Delivery) -> Delivery:
        if self.closing:
            raise AgentClosing("closing")
        return delivery

    def delivered(self, delivery: Delivery) -> None:
        self.told.append(("delivered", delivery.id))

    def discarded(self, rows: Sequence[PendingRow], reason: str) -> None:
        self.told.append(("discarded", *[row.id for row in rows], reason))

    def failed(self, error: RetinueError) -> None:
        self.told.append(("failed", type(error)))


async def create_root(sessions: Sessions, header: SessionHeader) -> tuple[Session, Receipt]:
    """A new tree whose root is loaded; its creation is submitted."""
    hold = await sessions.hold(header.id)
    tx = sessions.transaction()
    return tx.create(header, header.id, hold), tx.submit()


async def planted(home: Home, *children: str) -> tuple[Sessions, Session]:
    """A table with a root and its children, all stored."""
    sessions = Sessions(home.open(), home.clock)
    root, receipt = await create_root(sessions, header("root"))
    tx = sessions.transaction()
    for child in children:
        tx.create(header(child, "root"), ROOT, root.hold)
    tx.submit()
    await receipt.wait()
    await sessions.writer.committed()
    return sessions, root


def live(sessions: Sessions, id: str) -> Session:
    session = sessions.live(SessionId(id))
    assert session is not None
    return session


async def agrees(session: Session, sessions: Sessions) -> None:
    """What is in memory is what is stored."""
    await sessions.writer.committed()
    stored = await sessions.store.read(session.id)
    assert session.events == stored.events
    rows = [*session.mailbox.next_step, *session.mailbox.next_turn, *session.mailbox.all_controls]
    in_memory = sorted((row.order, row.delivery, row.parked) for row in rows) if all_ordered(rows) else rows
    assert in_memory == [(row.order, row.delivery, row.parked) for row in stored.pending]


def all_ordered(rows: list[PendingRow]) -> bool:
    return all(row.order is not None for row in rows)
