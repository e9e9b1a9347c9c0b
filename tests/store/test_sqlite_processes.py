"""Real processes on one database: who dies loses nothing that was committed, and holds nothing any more."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from retinue.base.clock import SystemClock
from retinue.base.ids import SessionId
from retinue.errors import LeaseLost, SessionHeld, StoreLocked
from retinue.session.events import StepStart, TurnStart
from retinue.session.rows import Batch
from retinue.session.store import StoreBusy
from retinue.session.table import Sessions
from retinue.store.sqlite import SqliteStore
from retinue.testing.clock import FakeClock
from tests.house.checkout import ROOT as CHECKOUT
from tests.store.contract import Tree, append, insert

ROOT = SessionId("root")

HOLDER = """
import sys
import anyio
from retinue.base.clock import SystemClock
from retinue.session.events import TurnStart
from retinue.store.sqlite import SqliteStore
from tests.store.contract import Tree, append, insert

async def main():
    store = SqliteStore.open(sys.argv[1], SystemClock())
    tree = await Tree.planted(store, "root")
    tree.commit(append("root", 0, TurnStart(1)), insert("root", "m1"))
    if sys.argv[2] == "frozen":
        store._connection.execute("BEGIN IMMEDIATE")
        store._connection.execute("UPDATE session SET length = 77")
    print(tree.lease.fence, flush=True)
    await anyio.sleep_forever()

anyio.run(main)
"""


@asynccontextmanager
async def holder(path: Path, state: str = "idle") -> AsyncIterator[anyio.abc.Process]:
    """A process that holds the lease of `root` and has committed one event and one message."""
    command = [sys.executable, "-c", HOLDER, str(path), state]
    process = await anyio.open_process(command, cwd=CHECKOUT, stderr=None)
    try:
        assert process.stdout is not None
        answer = b""
        while not answer.endswith(b"\n"):
            answer += await process.stdout.receive()
        assert answer == b"1\n"
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home.db"


async def test_the_living_holder_is_named(path: Path) -> None:
    async with holder(path) as process:
        store = SqliteStore.open(path, SystemClock())
        with pytest.raises(SessionHeld, match=rf"process {process.pid} on .* \(since 20\d\d-.*\); end that process"):
            await store.acquire(ROOT)
        await store.aclose()


async def test_a_killed_process_is_followed_at_once_and_its_commits_are_there(path: Path) -> None:
    async with holder(path) as process:
        process.kill()
        await process.wait()
        assert len(list((path.parent / "home.db.owners").iterdir())) == 1

        store = SqliteStore.open(path, SystemClock())
        assert len(list((path.parent / "home.db.owners").iterdir())) == 1, "the dead owner's file is cleaned away"
        lease = await store.acquire(ROOT)
        assert lease.fence == 2
        stored = await store.read(ROOT)
        assert [event.data for event in stored.events] == [TurnStart(1)]
        assert [row.delivery.id for row in stored.pending] == ["m1"]
        Tree(store, lease).commit(append("root", 1, StepStart(1, 1)))
        await store.aclose()
    assert [p.name for p in path.parent.iterdir()] == ["home.db"]


async def test_a_process_killed_inside_a_transaction_leaves_nothing_of_it(path: Path) -> None:
    async with holder(path, "frozen") as process:
        store = SqliteStore.open(path, SystemClock())
        process.kill()
        await process.wait()
        lease = await store.acquire(ROOT)
        assert len((await store.read(ROOT)).events) == 1
        Tree(store, lease).commit(append("root", 1, StepStart(1, 1)))
        await store.aclose()


async def test_a_killed_process_frees_those_who_were_waiting_for_its_transaction(path: Path) -> None:
    async with holder(path, "frozen") as process:
        store = SqliteStore.open(path, SystemClock())
        async with anyio.create_task_group() as tg:
            tg.start_soon(store.acquire, ROOT)
            await anyio.wait_all_tasks_blocked()
            process.kill()
        assert (await store.read(ROOT)).events[0].data == TurnStart(1)
        await store.aclose()


async def test_a_process_stopped_inside_a_transaction_is_named_and_nothing_is_lost_by_waiting(path: Path) -> None:
    async with holder(path, "frozen") as process:
        process.send_signal(signal.SIGSTOP)
        clock = FakeClock()
        store = SqliteStore.open(path, clock)
        name = rf"process {process.pid} on {re.escape(socket.gethostname())}"
        with pytest.raises(StoreBusy, match=name):
            store.begin([Batch((insert("root", "m2"),))], lambda _: None)

        sessions = Sessions(store, clock)
        refused = sessions.post(insert("root", "m3").delivery)
        await anyio.lowlevel.checkpoint()  # the first try
        await clock.advance(31)
        with pytest.raises(StoreLocked, match=rf"locked for 30 s by {name}; end or continue that process"):
            await refused.wait()

        late = sessions.post(insert("root", "m4").delivery)
        process.kill()
        await process.wait()
        await late.wait()
        assert [row.delivery.id for row in await store.read_rows(ROOT)] == ["m1", "m4"]
        await store.aclose()


async def test_the_files_of_the_dead_are_cleaned_and_those_of_the_living_stay(path: Path) -> None:
    owners = path.parent / "home.db.owners"
    async with holder(path):
        (living,) = owners.iterdir()
        (owners / "dead.lock").write_text("{}")
        store = SqliteStore.open(path, SystemClock())
        assert len(list(owners.iterdir())) == 2
        assert living.exists()
        await store.aclose()
        assert list(owners.iterdir()) == [living]


async def test_a_holder_that_lost_its_file_counts_as_dead_and_is_kept_out(path: Path) -> None:
    one = SqliteStore.open(path, SystemClock())
    tree = await Tree.planted(one)
    for file in (path.parent / "home.db.owners").iterdir():
        os.unlink(file)
    two = SqliteStore.open(path, SystemClock())
    await two.acquire(ROOT)
    assert isinstance(tree.refused(append("root", 0, TurnStart(1))), LeaseLost)
    await one.aclose()
    await two.aclose()
