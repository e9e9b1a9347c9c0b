"""A home that an older Retinue wrote: it is brought forward whole, or left as it was."""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path

import anyio
import apsw
import pytest

from retinue.base.ids import SessionId
from retinue.errors import SchemaTooNew, StoreFailure
from retinue.session.events import StepEnd, StepStart, TurnEnd, TurnStart
from retinue.session.rows import Claim
from retinue.store.sqlite import SqliteStore
from retinue.store.sqlite._schema import APPLICATION_ID, MIGRATIONS, open_database
from retinue.testing.clock import FakeClock
from tests.store.contract import Tree, append, insert
from tests.store.test_sqlite_processes import holder

ROOT = SessionId("root")
CHILD = SessionId("child")
NEWEST = len(MIGRATIONS)

PINNED = {1: "0db2c5dd"}
"""Versions that exist in the world, and how the text begins that made them, hashed: it never changes again."""

OLD = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA journal_mode = WAL;
{MIGRATIONS[0]}
INSERT INTO session (key, id, root, parent, is_delegated, created_at, header, length, last_event_at, open_turn)
VALUES (1, 'root', 'root', NULL, 0, 1000, '{{"id":"root","created_at":1000}}', 3, 2002, 1);
INSERT INTO session (key, id, root, parent, is_delegated, created_at, header, length, last_event_at, open_activation)
VALUES (2, 'child', 'root', 'root', 1, 1500,
    '{{"id":"child","created_at":1500,"parent_session":"root","origin":"subagent","delegation_depth":1}}', 1, 2003, 1);
INSERT INTO body (key, hash, data) VALUES (1, x'00', '{{"header":{{"config":{{}}}},"reason":"initial"}}');
INSERT INTO event (session, seq, time, type, data) VALUES (1, 0, 2000, 'turn/start', '{{"turn":1}}');
INSERT INTO event (session, seq, time, type, body) VALUES (1, 1, 2001, 'request/header', 1);
INSERT INTO event (session, seq, time, type, data) VALUES (1, 2, 2002, 'step/start', '{{"turn":1,"step":1}}');
INSERT INTO event (session, seq, time, type, data) VALUES (2, 0, 2003, 'subagent/activation', '{{"epoch":1}}');
INSERT INTO message (id, session, ord, target, wake, accepted_at, source, data)
VALUES ('m1', 1, 0, 'next-turn', 1, 3000, 'user',
    '{{"id":"m1","content":[{{"type":"text","text":"Hello."}}],"source":{{"kind":"user"}}}}');
INSERT INTO lease (root, fence, owner, expires_at) VALUES ('root', 7, 'a-dead-process', 9999999999999);
PRAGMA user_version = 1;
"""
"""A home of version 1 whose process was killed in the middle of a turn, as its own statements left it."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "home.db"
    connection = apsw.Connection(str(path))
    connection.execute(OLD.replace("'{", "CAST('{").replace("}'", "}' AS BLOB)")).fetchall()
    connection.close()
    return path


def version(path: Path) -> int:
    connection = apsw.Connection(str(path))
    try:
        return connection.pragma("user_version")  # pyright: ignore[reportReturnType]
    finally:
        connection.close()


@pytest.mark.parametrize("number", PINNED)
def test_a_version_that_exists_in_the_world_is_never_changed(number: int) -> None:
    assert sha256(MIGRATIONS[number - 1].encode()).hexdigest()[:8] == PINNED[number]


async def test_open_turns_and_pending_messages_go_on_after_the_migration(old: Path) -> None:
    store = SqliteStore.open(old, FakeClock())
    assert version(old) == NEWEST
    stored = await store.read(ROOT)
    assert [event.type for event in stored.events] == ["turn/start", "request/header", "step/start"]
    assert [row.delivery.id for row in stored.pending] == ["m1"]
    assert await store.owing(ROOT) == [ROOT, CHILD]
    lease = await store.acquire(ROOT)
    assert lease.fence == 8
    Tree(store, lease).commit(
        append("root", 3, StepEnd(1, 1), TurnEnd(turn=1, reason="completed"), TurnStart(2), StepStart(2, 1)),
        Claim(ROOT, (stored.pending[0].delivery.id,), 2),
        insert("child", "m2"),
    )
    assert len((await store.read(ROOT)).events) == 7
    await store.aclose()


async def test_what_the_home_was_is_kept_beside_it(old: Path) -> None:
    await SqliteStore.open(old, FakeClock()).aclose()
    copy = old.with_name("home.db.v1")
    assert sorted(p.name for p in old.parent.iterdir()) == ["home.db", "home.db.v1"]
    assert version(copy) == 1
    assert copy.stat().st_mode & 0o777 == 0o600
    before = copy.read_bytes()
    await SqliteStore.open(old, FakeClock()).aclose()
    assert copy.read_bytes() == before
    connection = apsw.Connection(str(copy))
    assert connection.execute("SELECT fence, owner FROM lease").fetchall() == [(7, "a-dead-process")]
    connection.close()


async def test_a_copy_that_cannot_be_made_stops_the_migration(old: Path) -> None:
    old.with_name("home.db.v1").mkdir()
    with pytest.raises(StoreFailure, match=r"the copy .*home\.db\.v1' cannot be written"):
        SqliteStore.open(old, FakeClock())
    assert version(old) == 1
    assert sorted(p.name for p in old.parent.iterdir()) == ["home.db", "home.db.v1"]


async def test_a_new_home_needs_no_copy(tmp_path: Path) -> None:
    await SqliteStore.open(tmp_path / "home.db", FakeClock()).aclose()
    assert [p.name for p in tmp_path.iterdir()] == ["home.db"]


async def test_a_home_that_another_process_works_with_is_not_migrated(tmp_path: Path) -> None:
    path = tmp_path / "home.db"
    more = (*MIGRATIONS, "CREATE TABLE extra (a TEXT) STRICT")
    async with holder(path) as process:
        with pytest.raises(
            StoreFailure,
            match=rf"version {NEWEST} and must be brought to {NEWEST + 1}, but process {process.pid} on .*end that",
        ):
            open_database(str(path), read_only=False, migrations=more)
        assert version(path) == NEWEST
        store = SqliteStore.open(path, FakeClock())
        assert [event.data for event in (await store.read(ROOT)).events] == [TurnStart(1)]
        await store.aclose()
        process.kill()
        await process.wait()
    open_database(str(path), read_only=False, migrations=more).close()
    assert version(path) == NEWEST + 1


async def test_a_process_that_opened_the_home_during_a_migration_is_told(old: Path) -> None:
    """It looks at the version again once it can be seen as a user of the home."""
    await SqliteStore.open(old, FakeClock()).aclose()

    class Late(FakeClock):
        def now_ms(self) -> int:  # asked between opening the database and announcing oneself
            migrated()
            return super().now_ms()

    def migrated() -> None:
        connection = apsw.Connection(str(old))
        connection.pragma("user_version", NEWEST + 1)
        connection.close()

    with pytest.raises(SchemaTooNew, match=f"version {NEWEST + 1}, and .* up to {NEWEST};"):
        SqliteStore.open(old, Late())
    assert not old.with_name("home.db.owners").exists()


async def test_two_processes_that_open_an_old_home_at_once_migrate_it_once(old: Path) -> None:
    script = "import sys; from retinue.store.sqlite._schema import open_database as o; o(sys.argv[1], read_only=False)"
    async with anyio.create_task_group() as tg:
        for _ in range(3):
            tg.start_soon(anyio.run_process, [sys.executable, "-c", script, str(old)])
    assert version(old) == NEWEST
