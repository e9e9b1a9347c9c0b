"""Writing into SQLite: what is refused by the world leaves nothing, and works again once the cause is gone."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import apsw
import pytest

from retinue.base.clock import SystemClock
from retinue.base.ids import MessageId, SessionId
from retinue.errors import StoreFailure
from retinue.model.content import AssistantMessage, Text, Usage
from retinue.session.events import (
    AssistantReply,
    RequestHeader,
    RequestHeaderChange,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
)
from retinue.session.rows import Claim, Committed, Op
from retinue.session.store import Outcome, StoreBusy
from retinue.session.writer import Writer
from retinue.store.sqlite import SqliteStore
from retinue.testing.clock import FakeClock
from tests.store.contract import Tree, append, commit, insert, message

ROOT = SessionId("root")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(path, FakeClock())
    yield store
    await store.aclose()


# Another process holds the lock.


async def test_a_locked_database_is_busy_and_nothing_was_tried(store: SqliteStore, path: Path) -> None:
    tree = await Tree.planted(store)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    called: list[object] = []
    with pytest.raises(StoreBusy, match="another process"):
        store.begin([tree.batch(append("root", 0, TurnStart(1)))], called.append)
    assert called == []
    assert (await store.read(ROOT)).events == []
    other.execute("ROLLBACK")
    tree.commit(append("root", 0, TurnStart(1)))
    other.close()


async def test_a_busy_database_names_the_living_processes(store: SqliteStore, path: Path) -> None:
    tree = await Tree.planted(store)
    other = SqliteStore.open(path, FakeClock())
    other._connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match=rf"process {os.getpid()} on .+"):
        store.begin([tree.batch()], lambda _: None)
    other._connection.execute("ROLLBACK")
    await other.aclose()


async def test_the_writer_waits_for_the_lock_and_then_writes(store: SqliteStore, path: Path) -> None:
    tree = await Tree.planted(store)
    writer = Writer(store, SystemClock())
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    outcomes: list[Outcome] = []
    writer.submit(tree.batch(append("root", 0, TurnStart(1))), outcomes.append)
    writer.submit(tree.batch(append("root", 1, StepStart(1, 1))), outcomes.append)
    with anyio.move_on_after(0.02):
        await writer.committed()
    assert outcomes == []
    other.execute("COMMIT")
    await writer.committed()
    assert [type(outcome) for outcome in outcomes] == [Committed, Committed]
    assert len((await store.read(ROOT)).events) == 2
    other.close()


async def test_a_lease_waits_for_the_lock(store: SqliteStore, path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    async with anyio.create_task_group() as tg:
        tg.start_soon(store.acquire, ROOT)
        await anyio.wait_all_tasks_blocked()
        other.execute("ROLLBACK")
    assert (await store.acquire(ROOT)).fence == 2
    other.close()


async def test_a_cancelled_wait_for_a_lease_takes_none(store: SqliteStore, path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with anyio.move_on_after(0.01) as scope:
        await store.acquire(ROOT)
    assert scope.cancelled_caught
    other.execute("ROLLBACK")
    assert (await store.acquire(ROOT)).fence == 1
    other.close()


# The disk refuses.


async def test_a_full_disk_refuses_the_group_and_a_freed_one_takes_it(store: SqliteStore) -> None:
    tree = await Tree.planted(store)
    tree.commit(append("root", 0, TurnStart(1)))
    before = await store.read(ROOT)
    (pages,) = store._connection.execute("PRAGMA page_count").fetchall()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    large = [tree.batch(append("root", 1 + i, message(f"m{i}", "x" * 50_000))) for i in range(3)]

    for group in (large, large[:1]):
        outcomes = commit(store, *group)
        assert [type(outcome) for outcome in outcomes] == [StoreFailure] * len(group)
        assert "no room" in str(outcomes[0])
        assert await store.read(ROOT) == before

    store._connection.execute("PRAGMA max_page_count = 4294967294")
    assert [type(outcome) for outcome in commit(store, *large)] == [Committed] * 3
    assert len((await store.read(ROOT)).events) == 4


async def test_a_read_only_database_refuses_and_a_writable_one_goes_on(store: SqliteStore) -> None:
    tree = await Tree.planted(store)
    batches = [tree.batch(append("root", 0, TurnStart(1))), tree.batch(insert("root", "m1"))]
    store._connection.execute("PRAGMA query_only = ON")
    outcomes = commit(store, *batches)
    assert [type(outcome) for outcome in outcomes] == [StoreFailure] * 2
    assert "cannot be written; check the owner" in str(outcomes[0])
    with pytest.raises(StoreFailure, match="cannot be written"):
        await store.acquire(ROOT)
    store._connection.execute("PRAGMA query_only = OFF")
    assert [type(outcome) for outcome in commit(store, *batches)] == [Committed] * 2


@pytest.mark.parametrize("group", [1, 3])
async def test_a_commit_that_fails_leaves_nothing(store: SqliteStore, group: int) -> None:
    tree = await Tree.planted(store, *[f"root-{i}" for i in range(3)])
    batches = [tree.batch(append(f"root-{i}", 0, TurnStart(1)), insert(f"root-{i}", f"m{i}")) for i in range(group)]
    store._connection.set_commit_hook(lambda: True)
    outcomes = commit(store, *batches)
    assert [type(outcome) for outcome in outcomes] == [StoreFailure] * group
    store._connection.set_commit_hook(None)
    assert [s.events + s.pending for i in range(3) if (s := await store.summary(SessionId(f"root-{i}")))] == [0, 0, 0]
    assert [type(outcome) for outcome in commit(store, *batches)] == [Committed] * group


async def test_a_commit_that_fails_anywhere_in_a_story_can_be_said_again(path: Path) -> None:
    """Each batch fails once before it succeeds; the end is the same as without any failure."""
    ends: list[object] = []
    for fails in (False, True):
        store = SqliteStore.open(path.with_suffix(f".{fails}"), FakeClock())
        tree = await Tree.planted(store)
        story = [
            (insert("root", "m1"), insert("root", "m2", prepend=True)),
            (Claim(ROOT, (MessageId("m2"),), 1), append("root", 0, TurnStart(1), StepStart(1, 1), message("m2"))),
            (tree.create("child", "root"), insert("child", "c1")),
            (append("root", 3, StepEnd(1, 1), TurnEnd(turn=1, reason="completed")),),
        ]
        for ops in story:
            if fails:
                store._connection.set_commit_hook(lambda: True)
                tree.refused(*ops)
                store._connection.set_commit_hook(None)
            tree.commit(*ops)
        ids = (ROOT, SessionId("child"))
        ends.append([(await store.read(id), await store.read_rows(id)) for id in ids])
        await store.aclose()
    assert ends[0] == ends[1]


# Size.


def step(turn: int, number: int, first: int) -> list[object]:
    reply = AssistantReply(
        turn=turn,
        step=number,
        message=AssistantMessage((Text("A short answer to a short question."),)),
        usage=Usage(1200, 40, 1000, 0, 1, 0.0012),
    )
    return [StepStart(turn, number), message(f"msg-{first:032x}", "A short question."), reply, StepEnd(turn, number)]


async def test_a_trivial_step_takes_less_than_a_kilobyte(path: Path) -> None:
    store = SqliteStore.open(path, FakeClock())
    tree = await Tree.planted(store)
    steps = 1000
    for number in range(steps):
        first = number * 4
        await patient(
            tree,
            insert("root", f"msg-{first:032x}", "A short question."),
            Claim(ROOT, (MessageId(f"msg-{first:032x}"),), 1),
            append("root", first, *step(1, number + 1, first)),  # pyright: ignore[reportArgumentType]
        )
    await store.aclose()
    assert path.stat().st_size < steps * 1024


async def test_a_hundred_children_share_one_large_header(path: Path) -> None:
    store = SqliteStore.open(path, FakeClock())
    tree = await Tree.planted(store)
    same = RequestHeaderChange(RequestHeader(config={}, system="Be brief. " * 1000), "initial")
    for number in range(100):
        id = f"child-{number}"
        tree.commit(tree.create(id, "root"), append(id, 0, TurnStart(1), same))
    assert (await store.read(SessionId("child-99"))).events[1].data == same
    await store.aclose()
    assert path.stat().st_size < 150_000


async def test_the_log_is_moved_into_the_database_while_it_is_open(store: SqliteStore, path: Path) -> None:
    tree = await Tree.planted(store)
    for seq in range(160):  # 8,000 pages: on a busy machine the first attempts to begin anew may find no moment for it
        await patient(tree, append("root", seq, message(f"m{seq}", "x" * 200_000)))
    store._flusher.close()  # it has done what it was asked to do
    assert path.stat().st_size > 15_000_000
    tree.commit(append("root", 160, message("last")))
    (_, pages, _) = store._connection.execute("PRAGMA wal_checkpoint").fetchall()[0]
    assert isinstance(pages, int)
    assert pages < 6_000, "the log has begun anew"
    assert len((await store.read(ROOT)).events) == 161


async def patient(tree: Tree, *ops: Op) -> None:
    """The batch is committed, though the store may be busy while its log begins anew."""
    while True:
        try:
            tree.commit(*ops)
        except StoreBusy:
            await anyio.sleep(0.001)
        else:
            return


# Waiting for the disk.


async def test_many_waits_for_the_disk_end_together(store: SqliteStore) -> None:
    tree = await Tree.planted(store)
    tree.commit(append("root", 0, TurnStart(1)))
    all_done = anyio.Event()
    answers: list[Exception | None] = []

    def done(error: Exception | None) -> None:
        answers.append(error)
        if len(answers) == 50:
            all_done.set()

    for _ in range(50):
        store.begin_sync(done)
    await all_done.wait()
    assert answers == [None] * 50


async def test_a_wait_for_the_disk_ends_although_the_store_is_closed(path: Path) -> None:
    store = SqliteStore.open(path, FakeClock())
    await Tree.planted(store)
    event = anyio.Event()
    store.begin_sync(lambda _: event.set())
    await store.aclose()
    await event.wait()


async def test_a_log_that_was_taken_away_is_not_confirmed(store: SqliteStore, path: Path) -> None:
    tree = await Tree.planted(store)
    os.rename(f"{path}-wal", f"{path}-gone")
    tree.commit(append("root", 0, TurnStart(1)))
    answers: list[Exception | None] = []
    event = anyio.Event()

    def done(error: Exception | None) -> None:
        answers.append(error)
        event.set()

    store.begin_sync(done)
    await event.wait()
    assert isinstance(answers[0], FileNotFoundError)
    os.replace(f"{path}-gone", f"{path}-wal")


async def test_a_disk_that_does_not_confirm_is_said(store: SqliteStore, path: Path) -> None:
    await Tree.planted(store)
    os.rename(f"{path}-wal", f"{path}-gone")
    os.mkfifo(f"{path}-wal")
    answers: list[Exception | None] = []
    event = anyio.Event()

    def done(error: Exception | None) -> None:
        answers.append(error)
        event.set()

    writer = os.open(f"{path}-wal", os.O_RDWR)  # so that opening it to flush does not block
    store.begin_sync(done)
    await event.wait()
    assert isinstance(answers[0], OSError)
    os.close(writer)
    os.replace(f"{path}-gone", f"{path}-wal")
