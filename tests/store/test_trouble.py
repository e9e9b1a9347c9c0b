"""What people and crashes do to the files of a home: it is said, and what is left is a whole, earlier state."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from retinue.base.ids import SessionId
from retinue.errors import StoreFailure
from retinue.session.events import StepEnd, StepStart, TurnStart
from retinue.session.invariants import violations
from retinue.store.sqlite import SqliteStore
from retinue.testing.clock import FakeClock
from tests.store.contract import Tree, append, message

ROOT = SessionId("root")


async def crashed(folder: Path) -> tuple[Path, int]:
    """A home as a killed process left it, with its log not moved into the database; how many events it had."""
    (folder / "live").mkdir()
    store = SqliteStore.open(folder / "live" / "home.db", FakeClock())
    tree = await Tree.planted(store)
    await store.aclose()
    store = SqliteStore.open(folder / "live" / "home.db", FakeClock())
    tree = Tree(store, await store.acquire(ROOT))
    tree.commit(append("root", 0, TurnStart(1)))
    for step in range(1, 11):
        first = 3 * step - 2
        tree.commit(append("root", first, StepStart(1, step), message(f"m{step}"), StepEnd(1, step)))
    (folder / "left").mkdir()
    for end in ("", "-wal"):
        shutil.copy(folder / "live" / f"home.db{end}", folder / "left" / f"home.db{end}")
    await store.aclose()
    return folder / "left" / "home.db", 31


async def left(path: Path) -> int:
    """How many events are left; they keep the rules of logs, and more can be added."""
    store = SqliteStore.open(path, FakeClock())
    tree = Tree(store, await store.acquire(ROOT))
    events = (await store.read(ROOT)).events
    assert violations(events) == []
    tree.commit(append("root", len(events), *([StepStart(1, 11)] if events else [TurnStart(1)])))
    await store.aclose()
    return len(events)


async def test_a_log_that_was_cut_off_leaves_whole_commits(tmp_path: Path) -> None:
    path, count = await crashed(tmp_path)
    log = path.with_name("home.db-wal").read_bytes()
    database = path.read_bytes()
    seen: list[int] = []
    for tenth in range(10, -1, -1):
        path.write_bytes(database)
        path.with_name("home.db-shm").unlink(missing_ok=True)
        path.with_name("home.db-wal").write_bytes(log[: len(log) * tenth // 10])
        seen.append(await left(path))
    assert seen[0] == count
    assert seen == sorted(seen, reverse=True)
    assert all(events == 0 or events % 3 == 1 for events in seen), "a commit is there whole or not at all"


async def test_a_log_that_was_taken_away_leaves_what_the_database_has(tmp_path: Path) -> None:
    path, _ = await crashed(tmp_path)
    path.with_name("home.db-wal").unlink()
    assert await left(path) == 0


async def test_a_database_that_was_emptied_beside_its_log_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "retinue.db"
    path.touch()
    (tmp_path / "retinue.db-wal").write_bytes(b"x" * 100)
    with pytest.raises(StoreFailure, match="cut off"):
        SqliteStore.open(path, FakeClock())
    assert (tmp_path / "retinue.db-wal").read_bytes() == b"x" * 100
    assert path.stat().st_size == 0


@pytest.mark.parametrize("tenths", range(1, 10))
async def test_a_database_that_was_cut_off_is_damaged_and_left_as_it_is(tmp_path: Path, tenths: int) -> None:
    store = SqliteStore.open(tmp_path / "home.db", FakeClock())
    tree = await Tree.planted(store)
    tree.commit(*(append("root", seq, message(f"m{seq}", "x" * 3000)) for seq in range(50)))
    await store.aclose()
    path = tmp_path / "home.db"
    os.truncate(path, path.stat().st_size * tenths // 10)
    with pytest.raises(StoreFailure, match="damaged"):
        await read_root(path)


async def read_root(path: Path) -> None:
    store = SqliteStore.open(path, FakeClock())
    try:
        await store.read(ROOT)
    finally:
        await store.aclose()
