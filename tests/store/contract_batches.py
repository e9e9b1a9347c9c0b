"""Contract, part 1: batches are atomic, refused for each reason alone, and do not touch their neighbours."""

from __future__ import annotations

import anyio
import pytest

from retinue.base.ids import MessageId, SessionId
from retinue.errors import AlreadyExists, ClaimConflict, IdConflict, LeaseLost, StoreFailure
from retinue.model.content import Text, UserMessage
from retinue.session.events import Opaque, StepStart, TurnEnd, TurnStart
from retinue.session.rows import Batch, Claim, Committed, Insert, Op, Replace
from retinue.session.store import SessionStore
from tests.store.contract import Tree, append, commit, header, insert, only, sent
from tests.store.homes import Home

ROOT, CHILD = SessionId("root"), SessionId("child")


async def state(store: SessionStore, *ids: str) -> list[object]:
    return [(await store.read(SessionId(id)), await store.read_rows(SessionId(id))) for id in ids]


class Wait:
    """Somebody who waits for the disk."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.errors: list[Exception | None] = []

    def done(self, error: Exception | None) -> None:
        self.errors.append(error)
        self.event.set()


class Batches:
    async def test_a_batch_changes_several_sessions_at_once(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root")
        tree.commit(
            tree.create("child", "root"),
            append("root", 0, TurnStart(1)),
            append("child", 0, TurnStart(1), StepStart(1, 1)),
            insert("child", "m1"),
            Claim(CHILD, (MessageId("m1"),), 1),
        )
        root, child = [await tree.store.read(id) for id in (ROOT, CHILD)]
        assert [event.type for event in root.events] == ["turn/start"]
        assert [event.type for event in child.events] == ["turn/start", "step/start"]
        assert [row.state for row in await tree.store.read_rows(CHILD)] == ["claimed"]

    async def test_a_batch_without_operations_is_committed(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        assert tree.commit() == Committed()
        assert only(commit(tree.store, Batch(()))) == Committed()
        assert commit(tree.store) == []

    async def test_appending_nothing_changes_nothing(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(append("root", 7))
        assert (await tree.store.read(ROOT)).events == []

    @pytest.mark.parametrize("others", [0, 1, 5])
    @pytest.mark.parametrize(
        ("ops", "error"),
        [
            ((Insert(sent("root", "taken", "Other words.")),), IdConflict),
            ((Insert(sent("child", "taken")),), IdConflict),
            ((Claim(ROOT, (MessageId("unknown"),), 1),), ClaimConflict),
            ((Claim(ROOT, (MessageId("taken"), MessageId("taken")), 1),), ClaimConflict),
            ((Claim(CHILD, (MessageId("taken"),), 1),), ClaimConflict),
            ((Replace(MessageId("unknown"), sent("root", "new")),), ClaimConflict),
            ((Replace(MessageId("taken"), sent("child", "new")),), ClaimConflict),
            ((Replace(MessageId("taken"), sent("root", "taken")),), IdConflict),
            ((append("root", 1, TurnStart(1)),), StoreFailure),
            ((append("root", -1, TurnStart(1)),), StoreFailure),
            ((append("root", 0, TurnStart(1)), append("root", 0, TurnStart(1))), StoreFailure),
            ((append("missing", 0, TurnStart(1)),), StoreFailure),
            ((append("root", 0, Opaque("x/y", object())),), StoreFailure),  # pyright: ignore[reportArgumentType]
            ((append("root", 0, Opaque("x/y", "\ud800")),), StoreFailure),
            ((append("root", 0, TurnStart(1), time=2**63),), StoreFailure),
        ],
    )
    async def test_a_refused_batch_leaves_nothing_and_fails_no_neighbour(
        self, home: Home, ops: tuple[Op, ...], error: type[Exception], others: int
    ) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        tree.commit(insert("root", "taken"))
        before = await state(tree.store, "root", "child")
        good: list[Op] = [append("child", 0, TurnStart(1)), insert("child", "fine"), insert("root", "fine too")]
        if "missing" not in str(ops[0]):
            bad = tree.batch(*good, *ops, insert("child", "late"))
        else:
            bad = tree.batch(*ops, *good)

        before_it = [tree.batch(insert("other", f"b{i}")) for i in range(others)]
        outcomes = commit(tree.store, *before_it, bad)

        assert [type(outcome) for outcome in outcomes] == [Committed] * others + [error]
        assert await state(tree.store, "root", "child") == before
        assert tree.commit(*good).orders == {"fine": 0, "fine too": 1}

    async def test_neighbours_of_a_refused_batch_are_kept_in_order(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        outcomes = commit(
            tree.store,
            tree.batch(append("root", 0, TurnStart(1)), insert("child", "m1")),
            tree.batch(append("root", 1, StepStart(1, 1)), Claim(ROOT, (MessageId("nothing"),), 1)),
            tree.batch(append("root", 2, TurnEnd(turn=1, reason="completed"))),
            tree.batch(append("root", 1, TurnEnd(turn=1, reason="error")), insert("child", "m2")),
        )
        assert [type(outcome) for outcome in outcomes] == [Committed, ClaimConflict, StoreFailure, Committed]
        assert [event.seq for event in (await tree.store.read(ROOT)).events] == [0, 1]
        assert [row.order for row in (await tree.store.read(CHILD)).pending] == [0, 1]

    async def test_a_later_batch_of_the_group_sees_the_earlier_ones(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        outcomes = commit(
            tree.store,
            tree.batch(tree.create("child", "root"), insert("child", "m1")),
            tree.batch(append("child", 0, TurnStart(1)), Claim(CHILD, (MessageId("m1"),), 1)),
            tree.batch(insert("child", "m1")),
        )
        assert [type(outcome) for outcome in outcomes] == [Committed] * 3
        assert outcomes[2] == Committed(repeated={MessageId("m1")})

    async def test_a_session_of_a_refused_batch_does_not_exist_for_the_next_one(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        outcomes = commit(
            tree.store,
            tree.batch(tree.create("child", "root"), Claim(ROOT, (MessageId("nothing"),), 1)),
            tree.batch(append("child", 0, TurnStart(1))),
            tree.batch(insert("child", "m1")),
        )
        assert [type(outcome) for outcome in outcomes] == [ClaimConflict, StoreFailure, Committed]
        assert outcomes[2] == Committed(undelivered={MessageId("m1")})

    async def test_a_session_is_created_once(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        tree.commit(append("child", 0, TurnStart(1)))
        assert isinstance(tree.refused(tree.create("child", "root")), AlreadyExists)
        assert isinstance(tree.refused(tree.create("x", "root"), tree.create("x", "root")), AlreadyExists)
        assert (await tree.store.summary(SessionId("x"))) is None
        assert (await tree.store.read(CHILD)).header == header("child", "root")

    # Fences.

    async def test_a_batch_with_another_fence_is_refused(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        fence = tree.lease.fence
        for wrong in (fence - 1, fence + 1):
            (outcome,) = commit(tree.store, Batch((append("root", 0, TurnStart(1)),), ((ROOT, wrong),)))
            assert isinstance(outcome, LeaseLost)
        (outcome,) = commit(tree.store, Batch((insert("root", "m1"),), ((SessionId("never held"), 1),)))
        assert isinstance(outcome, LeaseLost)
        assert (await tree.store.read(ROOT)).events == []
        assert await tree.store.read_rows(ROOT) == []

    async def test_each_fence_of_a_batch_counts(self, home: Home) -> None:
        store = home.open()
        one, two = await Tree.planted(store, "one"), await Tree.planted(store, "two")
        both = ((one.root, one.lease.fence), (two.root, two.lease.fence))
        ops = (append("one", 0, TurnStart(1)), append("two", 0, TurnStart(1)))
        await store.acquire(two.root)
        (outcome,) = commit(store, Batch(ops, both))
        assert isinstance(outcome, LeaseLost)
        assert [(await store.read(id)).events for id in (one.root, two.root)] == [[], []]

    async def test_logs_and_claims_change_only_under_the_fence_of_their_tree(self, home: Home) -> None:
        store = home.open()
        tree = await Tree.planted(store, "root", "child")
        other = await Tree.planted(store, "other")
        tree.commit(insert("child", "m1"))
        for op in (append("child", 0, TurnStart(1)), Claim(CHILD, (MessageId("m1"),), 1), tree.create("new", "root")):
            (outcome,) = commit(store, Batch((op,)))
            assert isinstance(outcome, StoreFailure)
            assert isinstance(other.refused(op), StoreFailure)

    async def test_rows_for_other_sessions_need_no_fence(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        assert only(commit(tree.store, Batch((insert("root", "m1"),)))).orders == {"m1": 0}

    # Durability and the end.

    async def test_what_is_committed_is_seen_by_another_process(self, home: Home) -> None:
        tree, other = await Tree.planted(home.open()), home.open()
        tree.commit(append("root", 0, TurnStart(1)), insert("root", "m1"))
        assert await state(other, "root") == await state(tree.store, "root")

    async def test_what_is_committed_survives_a_death(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(append("root", 0, TurnStart(1)), insert("root", "m1"))
        before = await state(tree.store, "root")
        home.kill(tree.store)
        assert await state(home.open(), "root") == before

    async def test_a_wait_for_the_disk_ends(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        for _ in range(3):
            one, two = Wait(), Wait()
            tree.store.begin_sync(one.done)
            tree.store.begin_sync(two.done)
            assert not one.event.is_set()
            for wait in (one, two):
                await wait.event.wait()
                assert wait.errors == [None]

    async def test_closing_twice_is_fine_and_nothing_works_afterwards(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        await tree.store.aclose()
        await tree.store.aclose()
        with pytest.raises(StoreFailure):
            tree.store.begin([tree.batch()], lambda _: None)
        with pytest.raises(StoreFailure):
            tree.store.begin_sync(lambda _: None)
        with pytest.raises(StoreFailure):
            await tree.store.read(ROOT)
        with pytest.raises(StoreFailure):
            await tree.store.acquire(ROOT)

    async def test_text_of_any_language_is_kept(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        text = "naïve \u4f60\u597d \U0001f600 \x00 \u2028"
        said = UserMessage(MessageId("m\u00e9"), (Text(text),))
        tree.commit(append("root", 0, said), insert("root", "m1", text))
        stored = await tree.store.read(ROOT)
        assert stored.events[0].data == said
        assert stored.pending[0].delivery == sent("root", "m1", text)
