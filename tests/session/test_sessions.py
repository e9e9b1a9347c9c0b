"""Sessions and transactions: memory follows the store, and what was refused is forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from retinue.base.ids import SessionId
from retinue.errors import (
    AlreadyExists,
    BadInput,
    ClaimConflict,
    LeaseLost,
    SessionHeld,
    SessionNotFound,
    StoreFailure,
)
from retinue.session.events import Event, StepStart, TurnStart
from retinue.session.mailbox import PendingRow
from retinue.session.session import Session
from retinue.session.table import Sessions
from tests.session.logs import ended, said
from tests.session.tables import ROOT, Recorder, agrees, create_root, live, planted
from tests.store.contract import header, sent
from tests.store.homes import Home

# Creating and loading.


async def test_a_root_is_live_at_once_and_stored_when_its_receipt_says_so(home: Home) -> None:
    sessions = Sessions(home.open(), home.clock)
    root, receipt = await create_root(sessions, header("root"))
    assert sessions.live(ROOT) is root
    assert root.is_new
    assert await sessions.store.summary(ROOT) is None
    await receipt.wait()
    assert not root.is_new
    assert (await sessions.store.read(ROOT)).header == header("root")


async def test_a_loaded_session_is_as_it_was_left(home: Home) -> None:
    sessions, root = await planted(home, "child")
    tx = sessions.transaction()
    tx.append(root, TurnStart(1), StepStart(1, 1))
    tx.insert(sent("root", "m1"))
    tx.insert(sent("child", "c1"))
    await tx.submit().wait()
    await sessions.aclose()

    again = Sessions(home.open(), home.clock)
    loaded = await again.load(ROOT)
    assert loaded is await again.load(ROOT)
    assert loaded.events == root.events
    assert loaded.turns.open is not None
    assert [row.id for row in loaded.mailbox.next_turn] == ["m1"]
    child = await again.load(SessionId("child"))
    assert child.hold is loaded.hold
    with pytest.raises(SessionNotFound):
        await again.load(SessionId("nobody"))


# Abandoned and refused transactions.


async def test_an_abandoned_transaction_changes_nothing(home: Home) -> None:
    sessions, root = await planted(home, "child")
    await sessions.writer.committed()
    tx = sessions.transaction()
    tx.create(header("new", "root"), ROOT, root.hold)
    tx.append(root, TurnStart(1))
    tx.insert(sent("root", "m1"))
    tx.insert(sent("child", "c1"))
    del tx
    assert sessions.live(SessionId("new")) is None
    assert (root.events, len(root.mailbox), root.turns.open) == ([], 0, None)
    await agrees(root, sessions)
    assert await sessions.store.summary(SessionId("new")) is None


async def test_an_empty_transaction_is_committed_at_once(home: Home) -> None:
    sessions, _ = await planted(home)
    receipt = sessions.transaction().submit()
    assert (await receipt.wait()).orders == {}


async def test_a_refused_batch_drops_every_session_it_changes_and_they_load_again(home: Home) -> None:
    sessions, root = await planted(home, "child", "bystander")
    child, bystander = live(sessions, "child"), live(sessions, "bystander")
    root.driver, child.driver = Recorder(), Recorder()
    first = sessions.transaction()
    first.append(root, TurnStart(1))
    first.submit()
    tx = sessions.transaction()
    tx.append(root, StepStart(1, 1))
    tx.append(child, TurnStart(1))
    tx.insert(sent("bystander", "b1"))
    tx.claim(root, [PendingRow(sent("root", "nothing"))], 1)
    receipt = tx.submit()
    assert len(bystander.mailbox) == 1

    with pytest.raises(ClaimConflict):
        await receipt.wait()
    assert root.driver.told == child.driver.told == [("failed", ClaimConflict)]
    assert sessions.live(ROOT) is None
    assert sessions.live(SessionId("child")) is None
    assert sessions.live(SessionId("bystander")) is bystander
    assert len(bystander.mailbox) == 0
    late = sessions.transaction()
    late.append(root, ended(1))
    with pytest.raises(ClaimConflict):
        late.submit()

    loaded = await sessions.load(ROOT)
    assert [event.data for event in loaded.events] == [TurnStart(1)]
    tx = sessions.transaction()
    tx.append(loaded, StepStart(1, 1))
    await tx.submit().wait()
    for session in (loaded, bystander, await sessions.load(SessionId("child"))):
        await agrees(session, sessions)


async def test_queued_batches_of_a_dropped_session_are_refused_too(home: Home) -> None:
    sessions, root = await planted(home)
    first = sessions.transaction()
    first.append(root, TurnStart(1))
    first.claim(root, [PendingRow(sent("root", "nothing"))], 1)
    refused = first.submit()
    second = sessions.transaction()
    second.append(root, StepStart(1, 1))
    queued = second.submit()
    with pytest.raises(ClaimConflict):
        await refused.wait()
    with pytest.raises(StoreFailure):
        await queued.wait()
    assert (await sessions.load(ROOT)).events == []


async def test_a_created_session_that_is_refused_is_not_there(home: Home) -> None:
    sessions, root = await planted(home, "child")
    sessions.unload(live(sessions, "child"))
    tx = sessions.transaction()
    again = tx.create(header("child", "root"), ROOT, root.hold)
    with pytest.raises(AlreadyExists):
        await tx.submit().wait()
    assert isinstance(again.failure, AlreadyExists)
    assert (await sessions.load(SessionId("child"))) is not again


# Observers.


async def test_observers_hear_of_events_when_they_are_placed_or_when_they_are_stored(home: Home) -> None:
    sessions, root = await planted(home)
    heard: list[tuple[str, list[Event]]] = []
    undo = [
        root.observe(lambda _, events: heard.append(("placed", list(events)))),
        root.observe(lambda _, events: heard.append(("stored", list(events))), durable=True),
        sessions.observe(lambda _, events: heard.append(("any placed", list(events)))),
        sessions.observe(lambda _, events: heard.append(("any stored", list(events))), durable=True),
    ]
    tx = sessions.transaction()
    tx.append(root, TurnStart(1))
    tx.append(root, StepStart(1, 1))
    receipt = tx.submit()
    assert heard == [("any placed", root.events), ("placed", root.events)]
    await receipt.wait()
    assert [name for name, _ in heard[2:]] == ["any stored", "stored"]
    assert all(events == root.events for _, events in heard)
    for one in undo:
        one()
    tx = sessions.transaction()
    tx.append(root, said("m1"))
    await tx.submit().wait()
    assert len(heard) == 4


async def test_refused_events_are_never_said_to_be_stored(home: Home) -> None:
    sessions, root = await planted(home)
    stored: list[Event] = []
    root.observe(lambda _, events: stored.extend(events), durable=True)
    tx = sessions.transaction()
    tx.append(root, TurnStart(1))
    tx.claim(root, [PendingRow(sent("root", "nothing"))], 1)
    with pytest.raises(ClaimConflict):
        await tx.submit().wait()
    assert stored == []


async def test_an_observer_cannot_change_its_session_and_its_failure_is_contained(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    sessions, root = await planted(home, "child")

    def writes_here(session: Session, _: Sequence[Event]) -> None:
        tx = sessions.transaction()
        tx.append(session, ended(1))
        tx.submit()

    def writes_there(_: Session, events: Sequence[Event]) -> None:
        tx = sessions.transaction()
        tx.append(live(sessions, "child"), events[0].data)
        tx.submit()

    root.observe(writes_here)
    root.observe(writes_there)
    tx = sessions.transaction()
    tx.append(root, TurnStart(1))
    await tx.submit().wait()
    assert [event.data for event in root.events] == [TurnStart(1)]
    assert [event.data for event in live(sessions, "child").events] == [TurnStart(1)]
    assert BadInput.__name__ in caplog.text
    await agrees(root, sessions)
    await agrees(live(sessions, "child"), sessions)


# Leases.


async def test_a_tree_is_held_by_one_process_until_it_lets_go(home: Home) -> None:
    sessions, root = await planted(home, "child")
    other = Sessions(home.open(), home.clock)
    for id in ("root", "child"):
        with pytest.raises(SessionHeld):
            await other.load(SessionId(id))
    await sessions.release(ROOT)
    with pytest.raises(SessionHeld):
        await other.load(ROOT)
    sessions.unload(root)
    sessions.unload(live(sessions, "child"))
    await sessions.release(ROOT)
    assert (await other.load(ROOT)).events == []


async def test_a_process_that_was_taken_over_writes_nothing_more(home: Home) -> None:
    sessions, root = await planted(home)
    root.driver = Recorder()
    other = Sessions(home.open(), home.clock)
    await home.clock.advance(31)
    taken = await other.load(ROOT)
    tx = sessions.transaction()
    tx.append(root, TurnStart(1))
    with pytest.raises(LeaseLost):
        await tx.submit().wait()
    assert root.driver.told == [("failed", LeaseLost)]
    assert taken.events == []
    with pytest.raises(SessionHeld):
        await sessions.load(ROOT)


async def test_renewing_finds_a_lost_lease_and_drops_its_sessions(home: Home) -> None:
    sessions, root = await planted(home, "child")
    root.driver = Recorder()
    await home.clock.advance(31)
    await Sessions(home.open(), home.clock).load(ROOT)
    await sessions.renew()
    assert root.driver.told == [("failed", LeaseLost)]
    assert list(sessions) == []


async def test_a_lease_that_is_only_uncertain_is_confirmed_and_its_sessions_go_on(home: Home) -> None:
    """As after a machine slept: another session of the tree loads, and the fence stays."""
    sessions, root = await planted(home, "child")
    sessions.unload(live(sessions, "child"))
    await home.clock.advance(20)
    assert not root.hold.is_valid
    child = await sessions.load(SessionId("child"))
    assert child.hold is root.hold
    assert root.hold.is_valid
    tx = sessions.transaction()
    tx.append(root, TurnStart(1))
    tx.append(child, TurnStart(1))
    await tx.submit().wait()


async def test_a_dead_process_is_followed_at_once_and_its_commits_are_there(home: Home) -> None:
    sessions, root = await planted(home)
    tx = sessions.transaction()
    tx.append(root, TurnStart(1))
    tx.insert(sent("root", "m1"))
    await tx.submit().wait()
    home.kill(sessions.store)
    loaded = await Sessions(home.open(), home.clock).load(ROOT)
    assert [event.data for event in loaded.events] == [TurnStart(1)]
    assert [row.id for row in loaded.mailbox.next_turn] == ["m1"]


async def test_cancelling_the_wait_for_a_receipt_does_not_end_it_early(home: Home) -> None:
    """Submit was the point of no return: whoever waits learns the outcome, cancelled or not."""
    sessions, root = await planted(home)
    tx = sessions.transaction()
    tx.append(root, TurnStart(1))
    receipt = tx.submit()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await receipt.wait()
    assert receipt.outcome is not None


async def test_a_header_names_its_cwd_and_parent_after_loading(home: Home) -> None:
    sessions, _ = await planted(home, "child")
    await sessions.aclose()
    child = await Sessions(home.open(), home.clock).load(SessionId("child"))
    assert (child.root, child.header) == (ROOT, header("child", "root"))
