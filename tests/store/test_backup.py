"""A copy of a whole home: of one moment, whole or not there, while others write."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import apsw
import pytest

from retinue.base.ids import SessionId
from retinue.errors import BadInput, StoreFailure
from retinue.session.events import Event
from retinue.session.rows import Append
from retinue.store.sqlite import SqliteStore, copy_database
from retinue.testing.clock import FakeClock
from tests.store.contract import Tree, append, insert, message
from tests.store.test_sqlite_processes import holder
from tests.store.test_sqlite_writing import patient

ROOT = SessionId("root")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here" / "home.db"


@pytest.fixture
async def tree(path: Path) -> AsyncIterator[Tree]:
    store = SqliteStore.open(path, FakeClock())
    tree = await Tree.planted(store)
    tree.commit(*(append("root", seq, message(f"m{seq}", "x" * 3000)) for seq in range(100)))
    yield tree
    await store.aclose()


async def seen(path: Path) -> int:
    """How many events of the root a home has; it is opened for writing, as a restored one would be."""
    store = SqliteStore.open(path, FakeClock())
    count = len((await store.read(ROOT)).events)
    await store.acquire(ROOT)
    await store.aclose()
    return count


async def test_a_copy_has_what_was_committed_and_is_a_home_of_its_own(tree: Tree, path: Path, tmp_path: Path) -> None:
    tree.commit(insert("root", "waiting"))
    copy_database(str(path), str(tmp_path / "copy.db"))
    tree.commit(append("root", 100, message("later")))
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.db", "here"]
    copy = SqliteStore.open(tmp_path / "copy.db", FakeClock(), read_only=True)
    assert [row.delivery.id for row in (await copy.read(ROOT)).pending] == ["waiting"]
    await copy.aclose()
    assert await seen(tmp_path / "copy.db") == 100, "and its trees are free: their holders have no lock there"


async def test_a_copy_taken_while_two_sessions_grow_together_shows_them_equally_long(
    tree: Tree, path: Path, tmp_path: Path
) -> None:
    tree.commit(tree.create("twin", "root"), *(append("twin", seq, message(f"t{seq}")) for seq in range(100)))
    copied = threading.Event()

    def copy() -> None:
        for number in range(5):
            copy_database(str(path), str(tmp_path / f"copy{number}.db"))
        copied.set()

    thread = threading.Thread(target=copy)
    thread.start()
    length = 100
    while not copied.is_set():
        both = (Append(SessionId(id), (Event(length, 1, message(f"{id}{length}")),)) for id in ("root", "twin"))
        await patient(tree, *both)
        length += 1
        await anyio.lowlevel.checkpoint()
    thread.join()
    for number in range(5):
        connection = apsw.Connection(str(tmp_path / f"copy{number}.db"))
        lengths = connection.execute("SELECT DISTINCT length FROM session").fetchall()
        counts = connection.execute("SELECT DISTINCT count(*) FROM event GROUP BY session").fetchall()
        assert len(lengths) == 1
        assert lengths == counts
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


async def test_a_copy_is_taken_while_another_process_is_stopped_inside_a_transaction(
    path: Path, tmp_path: Path
) -> None:
    async with holder(path, "frozen"):
        copy_database(str(path), str(tmp_path / "copy.db"))
    assert await seen(tmp_path / "copy.db") == 1


async def test_what_is_there_is_replaced_only_if_that_was_said(tree: Tree, path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_bytes(b"precious")
    with pytest.raises(BadInput, match="copy.db' exists already"):
        copy_database(str(path), str(target))
    assert target.read_bytes() == b"precious"
    copy_database(str(path), str(target), replace=True)
    assert await seen(target) == 100


async def test_a_damaged_home_is_not_copied_and_leaves_no_half_file(path: Path, tmp_path: Path) -> None:
    store = SqliteStore.open(path, FakeClock())
    tree = await Tree.planted(store)
    tree.commit(*(append("root", seq, message(f"m{seq}", "x" * 3000)) for seq in range(100)))
    await store.aclose()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xee" * 4096)
    before = b"the last good copy"
    (tmp_path / "copy.db").write_bytes(before)
    with pytest.raises(StoreFailure, match=r"home\.db' cannot be used: it is damaged"):
        copy_database(str(path), str(tmp_path / "copy.db"), replace=True)
    assert (tmp_path / "copy.db").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.db", "here"]


LIMITED = """
import resource, signal, sys
from retinue.errors import StoreFailure
from retinue.store.sqlite import copy_database
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    copy_database(sys.argv[1], sys.argv[2])
except StoreFailure as error:
    print(error)
"""


async def test_a_copy_for_which_there_is_no_room_leaves_no_half_file(tree: Tree, path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    answer = await anyio.run_process([sys.executable, "-c", LIMITED, str(path), str(target)])
    assert b"cannot be" in answer.stdout
    assert b"copy.db" in answer.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["here"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
async def test_a_folder_that_cannot_be_written_is_named(tree: Tree, path: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(StoreFailure, match=r"the copy .*locked/copy\.db' cannot be written"):
        copy_database(str(path), str(tmp_path / "locked" / "copy.db"))


async def test_a_missing_folder_is_named(tree: Tree, path: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreFailure, match=r"the copy .*nowhere/copy\.db' cannot be written"):
        copy_database(str(path), str(tmp_path / "nowhere" / "copy.db"))
