"""Whatever is submitted, refused or not: memory ends as the store has it, and no log breaks a rule."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeAlias

import anyio
import anyio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.base.ids import MessageId, SessionId
from retinue.errors import RetinueError
from retinue.model.content import UserMessage
from retinue.session.events import Payload, StepEnd, StepStart, TurnStart
from retinue.session.invariants import violations
from retinue.session.mailbox import PendingRow
from retinue.session.rows import Target
from retinue.session.session import Session
from retinue.session.table import Sessions
from retinue.session.transaction import Transaction
from retinue.store.memory import MemoryStore
from retinue.testing.clock import FakeClock
from tests.session.logs import ended, reply
from tests.session.tables import create_root
from tests.store.contract import header, sent

NAMES = ("root", "a", "b")

Step: TypeAlias = tuple[str, str, int]

steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("send", "send", "steer", "prepend", "again", "conflict"),
                *("turn", "turn", "step", "refused turn", "withdraw", "replace", "park", "hush", "both"),
                *("yield", "yield", "reload", "commit"),
            ]
        ),
        st.sampled_from(NAMES),
        st.integers(0, 5),
    ),
    max_size=40,
)


class World:
    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.count = 0

    async def session(self, name: str) -> Session:
        return await self.sessions.load(SessionId(name))

    def known(self, number: int) -> str:
        return f"m{number % max(1, self.count)}"

    def send(self, name: str, *, target: Target = "next-turn", prepend: bool = False, again: int | None = None) -> None:
        id = f"m{self.count}" if again is None else self.known(again)
        self.count += again is None
        tx = self.sessions.transaction()
        tx.insert(sent(name, id, f"to {name}", target=target, wake=self.count % 3 > 0), prepend=prepend)
        tx.submit()

    def enter(self, tx: Transaction, session: Session, *extra: PendingRow) -> None:
        """One step of a turn of its own, which takes what a turn takes."""
        turn = session.turns.last + 1
        rows = session.mailbox.choose_for_turn()
        tx.claim(session, [*rows, *extra], turn)
        entered: list[UserMessage] = [row.delivery.message for row in rows]
        payloads: list[Payload] = [TurnStart(turn), StepStart(turn, 1), *entered, reply(turn, 1), StepEnd(turn, 1)]
        tx.append(session, *payloads, ended(turn))

    async def act(self, step: Step) -> None:
        what, name, number = step
        session = await self.session(name)
        rows = [*session.mailbox.next_step, *session.mailbox.next_turn]
        row = rows[number % len(rows)] if rows else None
        tx = self.sessions.transaction()
        match what:
            case "send":
                self.send(name)
            case "steer":
                self.send(name, target="next-step")
            case "prepend":
                self.send(name, prepend=True)
            case "again" | "conflict" if self.count:
                self.send(name, again=number)
            case "turn":
                self.enter(tx, session)
            case "step":
                turn = session.turns.last + 1
                tx.append(session, TurnStart(turn), ended(turn))
            case "refused turn":
                self.enter(tx, session, PendingRow(sent(name, "unknown")))
            case "withdraw" if row is not None:
                tx.withdraw(session, [row.id], "cleared")
            case "replace" if row is not None:
                self.count += 1
                tx.replace(session, row.id, sent(name, f"m{self.count - 1}", "instead"))
            case "park":
                tx.park(session)
            case "hush" if row is not None:
                tx.hush(session, [row])
            case "both":
                other = await self.session("root")
                self.enter(tx, session)
                if other is not session:
                    self.enter(tx, other)
            case "yield":
                for _ in range(number):
                    await anyio.lowlevel.checkpoint()
            case "reload":
                self.sessions.unload(session)
                await self.session(name)
            case "commit":
                await self.sessions.writer.committed()
            case _:
                pass
        tx.submit()


async def explore(todo: list[Step]) -> None:
    store = MemoryStore(FakeClock())
    sessions = Sessions(store, FakeClock())
    root, receipt = await create_root(sessions, header("root"))
    tx = sessions.transaction()
    for name in NAMES[1:]:
        tx.create(header(name, "root"), root.id, root.hold)
    tx.submit()
    await receipt.wait()
    await sessions.writer.committed()

    world = World(sessions)
    for step in todo:
        with suppress(RetinueError):
            await world.act(step)
    await sessions.writer.committed()
    entered: list[MessageId] = []
    for name in NAMES:
        session = await sessions.load(SessionId(name))
        stored, trail = await store.read(session.id), await store.read_rows(session.id)
        assert session.events == stored.events
        in_memory = [
            (row.id, row.order, row.parked, row.delivery.wake)
            for row in sorted(
                (*session.mailbox.next_step, *session.mailbox.next_turn), key=lambda row: (row.order is None, row.order)
            )
        ]
        assert in_memory == [(r.delivery.id, r.order, r.parked, r.delivery.wake) for r in stored.pending]
        assert violations(stored.events, trail) == []
        entered.extend(event.data.id for event in stored.events if isinstance(event.data, UserMessage))
    assert len(entered) == len(set(entered)), "each message entered at most once, wherever it was sent"


@settings(max_examples=100)
@given(steps)
def test_memory_ends_as_the_store_has_it(todo: list[Step]) -> None:
    anyio.run(explore, todo)
