"""What other processes send reaches the loaded sessions of held trees, in order, once, and nobody else."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from retinue.base.clock import SystemClock
from retinue.base.ids import MessageId, SessionId
from retinue.errors import IdConflict
from retinue.session.rows import Delivery
from retinue.session.table import LOOK_S, Sessions
from retinue.store.sqlite import SqliteStore
from retinue.testing.faults import FaultyStore
from retinue.testing.gate import Gate
from tests.session.tables import ROOT, Recorder, agrees, create_root, live, planted
from tests.store.contract import header, sent
from tests.store.contract_arrivals import order
from tests.store.homes import Home

CHILD = SessionId("child")


async def test_a_look_takes_in_what_others_have_sent_and_tells_the_driver(home: Home) -> None:
    sessions, root = await planted(home)
    root.driver = driver = Recorder()
    other = Sessions(home.open(), home.clock)
    for id in ("m1", "m2"):
        await other.post(sent("root", id)).wait()
    await other.post(order("root", "o1")).wait()
    assert len(root.mailbox) == 0
    await sessions.look()
    assert [row.id for row in root.mailbox.next_turn] == ["m1", "m2"]
    assert [row.id for row in root.mailbox.all_controls] == ["o1"]
    assert driver.told == [("delivered", "m1"), ("delivered", "m2"), ("delivered", "o1")]
    await sessions.look()
    assert len(driver.told) == 3
    await agrees(root, sessions)


async def test_what_was_sent_here_is_not_found_again(home: Home) -> None:
    sessions, root = await planted(home)
    root.driver = driver = Recorder()
    tx = sessions.transaction()
    tx.insert(sent("root", "m1"))
    await tx.submit().wait()
    await Sessions(home.open(), home.clock).post(sent("root", "m2")).wait()
    await sessions.look()
    assert driver.told == [("delivered", "m1"), ("delivered", "m2")]


async def test_what_is_being_claimed_is_not_found_again(home: Home) -> None:
    store = FaultyStore(home.open())
    sessions = Sessions(store, home.clock)
    root, receipt = await create_root(sessions, header("root"))
    await receipt.wait()
    root.driver = driver = Recorder()
    await Sessions(home.open(), home.clock).post(sent("root", "m1")).wait()
    await sessions.look()
    gate = Gate()
    store.hold(lambda batch: True, gate)
    tx = sessions.transaction()
    tx.claim(root, root.mailbox.choose_for_turn(), 1)
    claimed = tx.submit()
    await gate.wait_reached()
    sessions.look_afresh()
    await sessions.look()
    assert driver.told == [("delivered", "m1")]
    assert len(root.mailbox) == 0
    gate.open()
    await claimed.wait()


async def test_an_instruction_from_elsewhere_resumes_what_was_parked(home: Home) -> None:
    sessions, root = await planted(home)
    tx = sessions.transaction()
    tx.insert(sent("root", "m1"))
    tx.submit()
    tx = sessions.transaction()
    tx.park(root)
    await tx.submit().wait()
    assert not root.mailbox.is_runnable
    await Sessions(home.open(), home.clock).post(sent("root", "m2")).wait()
    await sessions.look()
    assert root.mailbox.parked == 0
    await agrees(root, sessions)


async def test_only_what_is_due_calls_for_a_session_that_is_not_loaded(home: Home) -> None:
    sessions, _ = await planted(home, "child")
    sessions.unload(live(sessions, "child"))
    heard: list[Delivery] = []
    sessions.on_arrival(heard.append)
    other = Sessions(home.open(), home.clock)
    await other.post(sent("child", "m1", wake=False)).wait()
    await sessions.look()
    assert heard == []
    await other.post(sent("child", "m2")).wait()
    await other.post(order("child", "o1")).wait()
    await sessions.look()
    assert [delivery.id for delivery in heard] == ["m2", "o1"]


async def test_what_is_posted_has_its_effect_once_even_under_the_same_id(home: Home) -> None:
    sessions, root = await planted(home)
    root.driver = driver = Recorder()
    first = await sessions.post(sent("root", "m1")).wait()
    again = await sessions.post(sent("root", "m1")).wait()
    assert (first.orders, first.repeated, again.repeated) == (again.orders, set(), {"m1"})
    assert driver.told == [("delivered", "m1")]
    with pytest.raises(IdConflict):
        await sessions.post(sent("root", "m1", "Other words.")).wait()
    assert [row.id for row in root.mailbox.next_turn] == ["m1"]
    await agrees(root, sessions)


async def test_a_session_that_is_loaded_while_a_message_is_on_its_way_has_it_once(home: Home) -> None:
    sessions, _ = await planted(home, "child")
    sessions.unload(live(sessions, "child"))
    receipt = sessions.post(sent("child", "m1"))
    child = await sessions.load(CHILD)
    await receipt.wait()
    assert [(row.id, row.order) for row in child.mailbox.next_turn] == [("m1", 0)]
    await agrees(live(sessions, "child"), sessions)


async def test_a_look_comes_by_itself_and_with_a_ring(home: Home) -> None:
    sessions, root = await planted(home)
    other = Sessions(home.open(), home.clock)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(sessions.keep_looking)
            await home.clock.wait_sleeping(LOOK_S)
            await other.post(sent("root", "m1")).wait()
            await home.clock.advance(LOOK_S)
            assert [row.id for row in root.mailbox.next_turn] == ["m1"]
            root.driver = driver = _Awaited()
            await other.post(sent("root", "m2")).wait()
            await other.store.ring(ROOT)
            await driver.heard.wait()
            group.cancel_scope.cancel()
    assert [row.id for row in root.mailbox.next_turn] == ["m1", "m2"]


class _Awaited(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.heard = anyio.Event()

    def delivered(self, delivery: Delivery) -> None:
        self.heard.set()


async def test_a_home_far_down_can_be_rung_too(tmp_path: Path) -> None:
    folder = tmp_path / ("far" * 30) / ("down" * 20)
    store, other = (SqliteStore.open(folder / "home.db", SystemClock()) for _ in range(2))
    heard = anyio.Event()
    await store.acquire(ROOT)
    assert store.listen(heard.set) == Path("/proc/self/fd").exists()
    if Path("/proc/self/fd").exists():
        await other.ring(ROOT)
        with anyio.fail_after(5):
            await heard.wait()
    await other.aclose()
    await store.aclose()
    assert [file.name for file in folder.iterdir()] == ["home.db"]


async def test_the_bell_of_a_dead_process_is_taken_down(tmp_path: Path) -> None:
    owners = tmp_path / "home.db.owners"
    owners.mkdir()
    for name in ("dead.bell", "dead.lock", "lost.bell"):
        (owners / name).write_text("{}")
    store = SqliteStore.open(tmp_path / "home.db", SystemClock())
    store.listen(lambda: None)
    assert sorted(file.suffix for file in owners.iterdir()) == [".bell", ".lock"]
    assert not [file for file in owners.iterdir() if file.stem in ("dead", "lost")]
    await store.aclose()
    assert not owners.exists()


async def test_a_ring_that_nobody_hears_is_no_failure(home: Home) -> None:
    sessions, _ = await planted(home)
    other = Sessions(home.open(), home.clock)
    assert (await other.post(sent("root", "m1")).wait()).orders == {MessageId("m1"): 0}
    assert await other.store.ring(ROOT) is not None
    await sessions.look()
