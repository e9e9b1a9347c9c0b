"""The file of the SQLite store: who may read it, which versions it has, and what becomes of it at the end."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import anyio
import apsw
import pytest

from retinue.base.ids import SessionId
from retinue.errors import CorruptSession, SchemaTooNew, SessionNotFound, StoreFailure
from retinue.session.events import RequestHeader, RequestHeaderChange, StepStart, TurnStart
from retinue.store.sqlite import SqliteStore
from retinue.store.sqlite._schema import MIGRATIONS, open_database
from retinue.testing.clock import FakeClock
from tests.store.contract import Tree, append, commit, insert, message

ROOT = SessionId("root")


def sql(path: Path, statement: str) -> list[apsw.SQLiteValues]:
    connection = apsw.Connection(str(path))
    rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home.db"


async def filled(path: Path) -> None:
    store = SqliteStore.open(path, FakeClock())
    tree = await Tree.planted(store)
    tree.commit(append("root", 0, TurnStart(1)), insert("root", "m1"))
    await store.aclose()


# Who may read it.


async def test_files_and_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore.open(tmp_path / "a" / "b" / "home.db", FakeClock())
        await Tree.planted(store)
    finally:
        os.umask(before)
    folder = tmp_path / "a" / "b"
    owners = folder / "home.db.owners"
    assert [mode(p) for p in (tmp_path / "a", folder, owners)] == [0o700] * 3
    files = {p.name: mode(p) for p in folder.iterdir() if p.is_file()}
    assert files == {"home.db": 0o600, "home.db-wal": 0o600, "home.db-shm": 0o600}
    assert [mode(p) for p in owners.iterdir()] == [0o600]
    await store.aclose()


async def test_a_closed_home_is_one_file(path: Path) -> None:
    await filled(path)
    assert [p.name for p in path.parent.iterdir()] == ["home.db"]
    assert sql(path, "SELECT count(*) FROM event") == [(1,)]


async def test_closing_beside_another_process_leaves_it_working(path: Path) -> None:
    one, two = SqliteStore.open(path, FakeClock()), SqliteStore.open(path, FakeClock())
    tree = await Tree.planted(one, "one")
    other = await Tree.planted(two, "two")
    tree.commit(append("one", 0, TurnStart(1)))
    await one.aclose()
    other.commit(append("two", 0, TurnStart(1)))
    assert len((await two.read(SessionId("one"))).events) == 1
    await two.aclose()
    assert [p.name for p in path.parent.iterdir()] == ["home.db"]


async def test_the_log_shrinks_at_the_end_though_a_reader_is_there(path: Path) -> None:
    store = SqliteStore.open(path, FakeClock())
    tree = await Tree.planted(store)
    reader = SqliteStore.open(path, FakeClock(), read_only=True)
    tree.commit(append("root", 0, message("m1", "x" * 100_000)))
    assert os.path.getsize(f"{path}-wal") > 100_000
    await store.aclose()
    assert os.path.getsize(f"{path}-wal") == 0
    assert len((await reader.read(ROOT)).events) == 1
    await reader.aclose()


# Versions.


async def test_a_new_home_has_the_newest_version(path: Path) -> None:
    await filled(path)
    assert sql(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]


async def test_a_newer_version_is_refused_with_both_numbers(path: Path) -> None:
    await filled(path)
    newer = len(MIGRATIONS) + 1
    sql(path, f"PRAGMA user_version = {newer}")
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(SchemaTooNew, match=rf"version {newer}\b.*up to {newer - 1}\b"):
            SqliteStore.open(path, FakeClock(), read_only=read_only)
    assert path.read_bytes() == before


async def test_an_older_version_is_brought_forward_step_by_step(path: Path) -> None:
    await filled(path)
    newest = len(MIGRATIONS)
    more = (
        *MIGRATIONS,
        "ALTER TABLE session ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'; CREATE TABLE extra (a TEXT) STRICT;",
        "UPDATE session SET colour = 'blue'",
    )
    connection = open_database(str(path), read_only=False, migrations=more)
    assert connection.execute("SELECT colour FROM session").fetchall() == [("blue",)]
    assert connection.execute("PRAGMA user_version").fetchall() == [(newest + 2,)]
    connection.close()


async def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    await filled(path)
    with pytest.raises(StoreFailure):
        open_database(
            str(path), read_only=False, migrations=(*MIGRATIONS, "CREATE TABLE extra (a TEXT) STRICT", "nonsense")
        )
    assert sql(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    assert sql(path, "SELECT name FROM sqlite_schema WHERE name = 'extra'") == []
    store = SqliteStore.open(path, FakeClock())
    assert len((await store.read(ROOT)).events) == 1
    await store.aclose()


async def test_an_older_version_is_not_read_but_left_for_a_writer(path: Path) -> None:
    await filled(path)
    with pytest.raises(StoreFailure, match=f"version {len(MIGRATIONS)} .*open it once for writing"):
        open_database(str(path), read_only=True, migrations=(*MIGRATIONS, "SELECT 1"))
    assert sql(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]


# Files of others.


@pytest.mark.parametrize("content", [b"x", b"Dear diary, " * 50, b"SQLite format 3\x00" + b"\x00" * 200])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_no_database_is_left_alone(path: Path, content: bytes, read_only: bool) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreFailure, match="not a database of Retinue"):
        SqliteStore.open(path, FakeClock(), read_only=read_only)
    assert path.read_bytes() == content
    assert [p.name for p in path.parent.iterdir()] == ["home.db"]


@pytest.mark.parametrize("mark", ["PRAGMA user_version = 1", "PRAGMA application_id = 77", "PRAGMA journal_mode = wal"])
def test_a_database_of_others_is_left_alone(path: Path, mark: str) -> None:
    sql(path, "CREATE TABLE session (id TEXT)")
    sql(path, mark)
    before = path.read_bytes()
    with pytest.raises(StoreFailure, match="not a database of Retinue"):
        SqliteStore.open(path, FakeClock())
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["home.db"]


async def test_an_empty_file_becomes_a_home(path: Path) -> None:
    path.touch()
    await filled(path)


def test_a_folder_in_its_place_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreFailure):
        SqliteStore.open(path, FakeClock())


def test_a_file_in_place_of_its_folder_is_refused(path: Path) -> None:
    path.touch()
    with pytest.raises(StoreFailure, match="choose another path"):
        SqliteStore.open(path / "home.db", FakeClock())


async def test_opening_keeps_the_locks_of_this_process(path: Path) -> None:
    """Closing a file that was opened by hand would drop them, and then two processes could write at once."""
    store = SqliteStore.open(path, FakeClock())
    store._connection.execute("BEGIN IMMEDIATE")
    await SqliteStore.open(path, FakeClock(), read_only=True).aclose()
    attempt = (
        "import apsw, sys\n"
        "try: apsw.Connection(sys.argv[1]).execute('BEGIN IMMEDIATE')\n"
        "except apsw.BusyError: print('busy')"
    )
    answer = await anyio.run_process([sys.executable, "-c", attempt, str(path)])
    assert answer.stdout == b"busy\n"
    store._connection.execute("ROLLBACK")
    await store.aclose()


# Looking on.


async def test_a_reader_sees_what_a_living_writer_commits(path: Path) -> None:
    store = SqliteStore.open(path, FakeClock())
    tree = await Tree.planted(store)
    reader = SqliteStore.open(path, FakeClock(), read_only=True)
    tree.commit(append("root", 0, TurnStart(1)))
    assert len((await reader.read(ROOT)).events) == 1
    tree.commit(append("root", 1, StepStart(1, 1)))
    assert len((await reader.read(ROOT)).events) == 2
    assert [s.header.id for s in await reader.roots()] == ["root"]
    assert len(list((path.parent / "home.db.owners").iterdir())) == 1
    await reader.aclose()
    tree.commit(insert("root", "m1"))
    await store.aclose()


async def test_a_reader_changes_nothing(path: Path) -> None:
    await filled(path)
    before = path.read_bytes()
    reader = SqliteStore.open(path, FakeClock(), read_only=True)
    with pytest.raises(StoreFailure, match="reading only"):
        commit(reader)
    with pytest.raises(StoreFailure, match="reading only"):
        reader.begin_sync(lambda _: None)
    for refused in (reader.acquire(ROOT), reader.renew([])):
        with pytest.raises(StoreFailure, match="reading only"):
            await refused
    await reader.aclose()
    await reader.aclose()
    assert path.read_bytes() == before
    assert not (path.parent / "home.db.owners").exists()


def test_a_reader_creates_no_home(tmp_path: Path) -> None:
    with pytest.raises(StoreFailure, match="there is no database at .*nowhere"):
        SqliteStore.open(tmp_path / "nowhere" / "home.db", FakeClock(), read_only=True)
    assert list(tmp_path.iterdir()) == []


# Removing.


async def test_what_was_removed_is_not_in_the_file_any_more(path: Path) -> None:
    store = SqliteStore.open(path, FakeClock())
    tree = await Tree.planted(store, "root", "child")
    header = RequestHeaderChange(RequestHeader(config={}, system="a whispered word " * 500), "initial")
    for id in ("root", "child"):
        tree.commit(append(id, 0, header, message(f"e-{id}", "a whispered word")), insert(id, id, "a whispered word"))
    assert len(await store.remove(tree.lease)) == 2
    await store.aclose()
    assert sql(path, "SELECT (SELECT count(*) FROM event) + (SELECT count(*) FROM body)") == [(0,)]
    assert b"whispered" not in path.read_bytes()


# Damage.


async def test_a_damaged_page_is_named_and_the_rest_is_read(path: Path) -> None:
    store = SqliteStore.open(path, FakeClock())
    tree = await Tree.planted(store, "root", "child")
    tree.commit(append("root", 0, *[message(f"m{i}", "x" * 3000) for i in range(50)]))
    tree.commit(append("child", 0, *[message(f"c{i}", "x" * 3000) for i in range(50)]))
    await store.aclose()
    pages = sql(path, "SELECT pageno FROM dbstat WHERE name = 'event' AND pagetype = 'leaf' ORDER BY path DESC")
    with path.open("r+b") as file:
        file.seek((int(str(pages[3][0])) - 1) * 4096)
        file.write(b"\xee" * 4096)

    store = SqliteStore.open(path, FakeClock())
    with pytest.raises(CorruptSession, match="'child'"):
        await store.read(SessionId("child"))
    assert len((await store.read(ROOT)).events) == 50
    with pytest.raises(SessionNotFound):
        await store.read(SessionId("nobody"))
    await store.aclose()
