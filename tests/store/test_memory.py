"""What the store in memory has for tests alone."""

from __future__ import annotations

import pytest

from retinue.base.ids import SessionId
from retinue.session.events import TurnStart
from retinue.session.store import StoreBusy
from retinue.store.memory import MemoryHome, MemoryStore
from retinue.testing.clock import FakeClock
from tests.store.contract import Tree, append


async def test_a_home_can_be_locked_by_somebody_else() -> None:
    home = MemoryHome()
    store = MemoryStore(FakeClock(), home)
    tree = await Tree.planted(store)
    home.locked_by = "process 7"
    with pytest.raises(StoreBusy, match="process 7"):
        store.begin([tree.batch(append("root", 0, TurnStart(1)))], lambda _: None)
    home.locked_by = None
    tree.commit(append("root", 0, TurnStart(1)))


async def test_a_home_outlives_its_stores() -> None:
    home = MemoryHome()
    tree = await Tree.planted(MemoryStore(FakeClock(), home))
    tree.commit(append("root", 0, TurnStart(1)))
    await tree.store.aclose()
    assert len((await MemoryStore(FakeClock(), home).read(SessionId("root"))).events) == 1


async def test_stores_without_a_common_home_know_nothing_of_each_other() -> None:
    await Tree.planted(MemoryStore(FakeClock()))
    assert await MemoryStore(FakeClock()).roots() == []
