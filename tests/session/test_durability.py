"""What survives the machine: the writer believes the disk once it has confirmed, and never again once it refused."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from retinue.errors import StoreFailure
from tests.session.desk import Desk, turns


async def test_without_power_safety_nobody_waits_for_the_disk() -> None:
    desk = Desk()
    desk.submit(1)
    await desk.writer.durable()
    assert desk.store.syncs == []


async def test_the_disk_is_waited_for_after_the_commit_and_once_for_many() -> None:
    desk = Desk(durability="power")
    async with anyio.create_task_group() as tg:
        desk.submit(1)
        for _ in range(10):
            tg.start_soon(desk.writer.durable)
        await turns()
        assert desk.done == [1]
        assert len(desk.store.syncs) == 1
        desk.store.syncs[0](None)
    await desk.writer.durable()
    assert len(desk.store.syncs) == 1


async def test_who_comes_during_a_sync_waits_for_the_next_one() -> None:
    desk = Desk(durability="power")
    finished: list[int] = []

    async def durable(n: int) -> None:
        desk.submit(n)
        await desk.writer.durable()
        finished.append(n)

    async with anyio.create_task_group() as tg:
        tg.start_soon(durable, 1)
        await turns()
        tg.start_soon(durable, 2)
        await turns()
        assert len(desk.store.syncs) == 1
        desk.store.syncs[0](None)
        await turns()
        assert finished == [1]
        assert len(desk.store.syncs) == 2
        desk.store.syncs[1](None)
    assert finished == [1, 2]


async def test_a_disk_that_refused_is_never_believed_again() -> None:
    desk = Desk(durability="power")
    failures: list[str] = []

    async def durable() -> None:
        try:
            await desk.writer.durable()
        except StoreFailure as error:
            failures.append(str(error))

    desk.submit(1)
    async with anyio.create_task_group() as tg:
        tg.start_soon(durable)
        tg.start_soon(durable)
        await turns()
        desk.store.syncs[0](OSError("worn out"))
    desk.submit(2)
    await durable()
    assert len(failures) == 3
    assert all("worn out" in failure for failure in failures)
    assert len(desk.store.syncs) == 1
    assert desk.done == [1, 2]


async def test_a_store_that_cannot_begin_to_sync_is_a_disk_that_refused() -> None:
    desk = Desk(durability="power")
    desk.store.sync_fails = StoreFailure("closed")
    desk.submit(1)
    for _ in range(2):
        with pytest.raises(StoreFailure, match="closed"):
            await desk.writer.durable()
