"""Messages on their way: in memory at once, ordered when stored, and there when their session loads meanwhile."""

from __future__ import annotations

import anyio
import pytest

from retinue.base.ids import MessageId, SessionId
from retinue.errors import (
    AgentClosing,
    IdConflict,
)
from retinue.session.events import TurnEnd, TurnStart
from retinue.session.rows import Insert
from retinue.session.session import Session
from retinue.session.store import SessionStore, StoredSession
from retinue.session.table import Sessions
from retinue.testing.faults import FaultyStore
from retinue.testing.gate import Gate
from tests.session.tables import ROOT, Recorder, agrees, create_root, planted
from tests.store.contract import header, sent
from tests.store.homes import Home


async def test_a_message_is_in_the_mailbox_at_once_and_ordered_when_it_is_stored(home: Home) -> None:
    sessions, root = await planted(home)
    root.driver = Recorder()
    for id, prepend in (("m1", False), ("m2", False), ("m0", True)):
        tx = sessions.transaction()
        tx.insert(sent("root", id), prepend=prepend)
        receipt = tx.submit()
    assert [(row.id, row.order) for row in root.mailbox.next_turn] == [("m0", None), ("m1", None), ("m2", None)]
    assert root.driver.told == [("delivered", "m1"), ("delivered", "m2"), ("delivered", "m0")]
    await receipt.wait()
    assert [(row.id, row.order) for row in root.mailbox.next_turn] == [("m0", -1), ("m1", 0), ("m2", 1)]


async def test_the_same_message_again_is_one_message(home: Home) -> None:
    sessions, root = await planted(home)
    for _ in range(2):
        for _ in range(2):
            tx = sessions.transaction()
            tx.insert(sent("root", "m1"))
            tx.submit()
        await agrees(root, sessions)
        assert [row.id for row in root.mailbox.next_turn] == ["m1"]


async def test_a_message_that_was_read_already_does_not_come_back(home: Home) -> None:
    sessions, root = await planted(home)
    tx = sessions.transaction()
    tx.insert(sent("root", "m1"))
    tx.submit()
    tx = sessions.transaction()
    tx.append(root, TurnStart(1))
    tx.claim(root, root.mailbox.choose_for_turn(), 1)
    await tx.submit().wait()
    tx = sessions.transaction()
    tx.insert(sent("root", "m1"))
    outcome = await tx.submit().wait()
    assert outcome.repeated == {"m1"}
    await agrees(root, sessions)
    assert len(root.mailbox) == 0


async def test_a_conflict_leaves_the_first_message(home: Home) -> None:
    sessions, root = await planted(home)
    for text in ("One.", "Two."):
        tx = sessions.transaction()
        tx.insert(sent("root", "m1", text))
        receipt = tx.submit()
    with pytest.raises(IdConflict):
        await receipt.wait()
    await agrees(root, sessions)
    assert sessions.live(ROOT) is root


async def test_withdrawn_and_sent_again_stays_withdrawn(home: Home) -> None:
    sessions, root = await planted(home)
    tx = sessions.transaction()
    tx.insert(sent("root", "m1"))
    tx.submit()
    tx = sessions.transaction()
    tx.withdraw(root, [MessageId("m1")], "cleared")
    tx.submit()
    tx = sessions.transaction()
    tx.insert(sent("root", "m1"))
    await tx.submit().wait()
    await agrees(root, sessions)
    assert len(root.mailbox) == 0


async def test_a_message_to_nobody_is_undelivered(home: Home) -> None:
    sessions, _ = await planted(home)
    tx = sessions.transaction()
    tx.insert(sent("nobody", "m1"))
    assert (await tx.submit().wait()).undelivered == {"m1"}


async def test_a_driver_that_closes_takes_nothing(home: Home) -> None:
    sessions, root = await planted(home)
    root.driver = Recorder()
    root.driver.closing = True
    with pytest.raises(AgentClosing):
        sessions.transaction().insert(sent("root", "m1"))


async def test_replacing_keeps_the_place_in_memory_and_store(home: Home) -> None:
    sessions, root = await planted(home)
    for id in ("m1", "m2", "m3"):
        tx = sessions.transaction()
        tx.insert(sent("root", id))
        tx.submit()
    root.driver = Recorder()
    tx = sessions.transaction()
    assert tx.replace(root, MessageId("m2"), sent("root", "n2", "Better."))
    assert not tx.replace(root, MessageId("m9"), sent("root", "n9"))
    tx.submit()
    tx = sessions.transaction()
    tx.insert(sent("root", "m4"))
    tx.submit()
    assert root.driver.told[0] == ("discarded", "m2", "replaced")
    await agrees(root, sessions)
    assert [row.id for row in root.mailbox.next_turn] == ["m1", "n2", "m3", "m4"]


async def test_parked_messages_wait_for_the_next_instruction(home: Home) -> None:
    sessions, root = await planted(home)
    for id in ("m1", "m2"):
        tx = sessions.transaction()
        tx.insert(sent("root", id))
        tx.submit()
    tx = sessions.transaction()
    assert tx.park(root) == 2
    tx.submit()
    await agrees(root, sessions)
    assert not root.mailbox.is_runnable
    tx = sessions.transaction()
    tx.insert(sent("root", "m3"))
    tx.submit()
    await agrees(root, sessions)
    assert [row.id for row in root.mailbox.choose_for_turn()] == ["m1"]


async def test_a_refused_instruction_unparks_nothing(home: Home) -> None:
    sessions, root = await planted(home, "child")
    for name, id in (("child", "taken"), ("root", "m1")):
        tx = sessions.transaction()
        tx.insert(sent(name, id))
        tx.submit()
    tx = sessions.transaction()
    tx.park(root)
    tx.submit()
    tx = sessions.transaction()
    tx.insert(sent("root", "taken"))
    with pytest.raises(IdConflict):
        await tx.submit().wait()
    loaded = await sessions.load(ROOT)
    await agrees(loaded, sessions)
    assert loaded.mailbox.parked == 1


# Messages that come while their session is being loaded.


class SlowRead:
    """A store whose reads wait at a gate after they have read, as a store on another machine does."""

    def __init__(self, inner: SessionStore, gate: Gate) -> None:
        self.inner = inner
        self.gate = gate

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    async def read(self, session_id: SessionId) -> StoredSession:
        stored = await self.inner.read(session_id)
        await self.gate.wait()
        return stored


@pytest.mark.parametrize("is_committed", [False, True])
async def test_a_message_that_comes_during_a_load_is_there_afterwards(home: Home, is_committed: bool) -> None:
    store = SlowRead(home.open(), Gate())
    sessions = Sessions(store, home.clock)  # pyright: ignore[reportArgumentType]
    root, receipt = await create_root(sessions, header("root"))
    await receipt.wait()
    tx = sessions.transaction()
    tx.insert(sent("root", "old"))
    tx.submit()
    tx = sessions.transaction()
    tx.park(root)
    await tx.submit().wait()
    sessions.unload(root)

    loaded: list[Session] = []

    async def load() -> None:
        loaded.append(await sessions.load(ROOT))

    async with anyio.create_task_group() as tg:
        tg.start_soon(load)
        await store.gate.wait_reached()
        tx = sessions.transaction()
        tx.insert(sent("root", "new"))
        tx.submit()
        if is_committed:
            await sessions.writer.committed()
        store.gate.open()
    (session,) = loaded
    assert [row.id for row in session.mailbox.next_turn] == ["old", "new"]
    await agrees(session, sessions)
    tx = sessions.transaction()
    tx.append(session, TurnStart(1))
    tx.claim(session, session.mailbox.choose_for_turn(), 1)
    tx.append(session, TurnEnd(turn=1, reason="completed"), TurnStart(2))
    tx.claim(session, session.mailbox.choose_for_turn(), 2)
    await tx.submit().wait()
    await agrees(session, sessions)


async def test_a_message_that_is_still_being_stored_when_its_session_loads_is_there(home: Home) -> None:
    store = FaultyStore(home.open())
    sessions = Sessions(store, home.clock)
    root, receipt = await create_root(sessions, header("root"))
    await receipt.wait()
    tx = sessions.transaction()
    tx.insert(sent("root", "old"))
    tx.submit()
    tx = sessions.transaction()
    tx.park(root)
    await tx.submit().wait()
    sessions.unload(root)
    reading, storing = Gate(), Gate()
    slow = SlowRead(store, reading)
    sessions.store = slow  # pyright: ignore[reportAttributeAccessIssue]
    store.hold(lambda batch: any(isinstance(op, Insert) for op in batch.ops), storing)

    loaded: list[Session] = []

    async def load() -> None:
        loaded.append(await sessions.load(ROOT))

    async with anyio.create_task_group() as tg:
        tg.start_soon(load)
        await reading.wait_reached()
        tx = sessions.transaction()
        tx.insert(sent("root", "new"))
        receipt = tx.submit()
        reading.open()
    (session,) = loaded
    assert receipt.outcome is None
    assert [(row.id, row.order, row.parked) for row in session.mailbox.next_turn] == [
        ("old", 0, False),
        ("new", None, False),
    ]
    storing.open()
    await receipt.wait()
    await agrees(session, sessions)
