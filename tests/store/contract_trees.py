"""Contract, part 5: a tree is read at one moment and removed as a whole, whatever else goes on in the home."""

from __future__ import annotations

import pytest

from retinue.base.ids import MessageId, SessionId
from retinue.errors import CorruptSession, LeaseLost, SessionHeld, SessionNotFound
from retinue.session.events import RequestHeader, RequestHeaderChange, StepEnd, StepStart, TurnEnd, TurnStart
from retinue.session.rows import Batch, Claim, Park, Withdraw
from tests.store.contract import Tree, append, commit, insert, message, only
from tests.store.homes import Home

ROOT = SessionId("root")
CHILD = SessionId("child")
LARGE = RequestHeaderChange(RequestHeader(config={}, system="Be brief. " * 1000), "initial")
"""Stored once for all sessions that carry it."""


async def grown(home: Home, root: str = "root", child: str = "child") -> Tree:
    """A tree with a log and rows of every state in both of its sessions."""
    tree = await Tree.planted(home.open(), root, child)
    for id in (root, child):
        ids = tuple(MessageId(f"{id}-{i}") for i in range(4))
        tree.commit(*(insert(id, message, f"words for {id}") for message in ids))
        tree.commit(
            Claim(SessionId(id), ids[:1], 1),
            Withdraw(SessionId(id), ids[1:2], "stopped"),
            Park(SessionId(id), ids[2:3]),
            append(id, 0, TurnStart(1), LARGE, StepStart(1, 1), message(ids[0])),
        )
    return tree


class Trees:
    async def test_a_tree_is_listed_and_read_in_the_order_of_its_creation(self, home: Home) -> None:
        tree = await grown(home)
        tree.commit(tree.create("a-younger-child", "root"))
        await grown(home, "other", "its-child")
        store = home.open()
        assert [s.header.id for s in await store.tree(ROOT)] == ["root", "child", "a-younger-child"]
        assert [s.pending for s in await store.tree(ROOT)] == [2, 2, 0]
        records = await store.read_tree(ROOT)
        assert [record.header.id for record in records] == ["root", "child", "a-younger-child"]
        for record in records:
            assert record.events == (await store.read(record.header.id)).events
            assert record.rows == await store.read_rows(record.header.id)
        assert [row.state for row in records[0].rows] == ["claimed", "withdrawn", "pending", "pending"]
        assert [row.parked for row in records[0].rows] == [False, False, True, False]

    async def test_a_child_or_nobody_has_no_tree(self, home: Home) -> None:
        store = (await grown(home)).store
        for id in (CHILD, SessionId("nobody")):
            assert await store.tree(id) == []
            with pytest.raises(SessionNotFound, match=f"root session '{id}'"):
                await store.read_tree(id)
            with pytest.raises(SessionNotFound, match=f"root session '{id}'"):
                await store.remove(await store.acquire(id))

    async def test_a_tree_with_a_damaged_session_cannot_be_read_but_removed(self, home: Home) -> None:
        tree = await grown(home)
        home.put_header(CHILD, b"{")
        with pytest.raises(CorruptSession, match="'child'"):
            await tree.store.read_tree(ROOT)
        assert [s.header.id for s in await tree.store.tree(ROOT)] == ["root"]
        assert await tree.store.remove(tree.lease) == [ROOT, CHILD]

    async def test_a_removed_tree_leaves_nothing_and_no_other_tree_notices(self, home: Home) -> None:
        tree, other = await grown(home), await grown(home, "other", "its-child")
        before = await other.store.read_tree(SessionId("other"))
        assert await tree.store.remove(tree.lease) == [ROOT, CHILD]
        store = home.open()
        assert [s.header.id for s in await store.roots()] == ["other"]
        assert [await store.summary(id) for id in (ROOT, CHILD)] == [None, None]
        assert (await store.children(ROOT), await store.owing(ROOT)) == ([], [])
        for id in (ROOT, CHILD):
            with pytest.raises(SessionNotFound):
                await store.read_rows(id)
        assert await store.read_tree(SessionId("other")) == before

    async def test_a_message_for_a_removed_session_is_undelivered(self, home: Home) -> None:
        tree, other = await grown(home), await grown(home, "other", "its-child")
        await tree.store.remove(tree.lease)
        end = (StepEnd(1, 1), TurnEnd(turn=1, reason="completed"))
        outcome = only(
            commit(other.store, Batch((insert("root", "late"), append("other", 4, *end)), other.batch().fences))
        )
        assert outcome.undelivered == {MessageId("late")}
        assert outcome.orders == {}

    async def test_what_a_removed_tree_was_called_can_be_used_again(self, home: Home) -> None:
        tree = await grown(home)
        before = await tree.store.read_tree(ROOT)
        await tree.store.remove(tree.lease)
        await tree.store.release(tree.lease)
        await grown(home)
        assert await home.open().read_tree(ROOT) == before

    async def test_a_late_writer_of_a_removed_tree_writes_nothing_into_a_new_one_of_that_name(self, home: Home) -> None:
        late = await grown(home)
        home.kill(late.store)
        store = home.open()
        lease = await store.acquire(ROOT)
        await store.remove(lease)
        await store.release(lease)
        tree = await Tree.planted(home.open())
        assert tree.lease.fence > lease.fence > late.lease.fence
        stale = Batch((append("root", 0, TurnStart(1)),), late.batch().fences)
        (outcome,) = commit(home.open(), stale)
        assert isinstance(outcome, LeaseLost)

    async def test_only_the_holder_of_a_tree_removes_it(self, home: Home) -> None:
        tree = await grown(home)
        other = home.open()
        with pytest.raises(SessionHeld):
            await other.acquire(ROOT)
        with pytest.raises(LeaseLost, match="nothing of it was changed"):
            await other.remove(tree.lease)
        newer = await tree.store.acquire(ROOT)
        with pytest.raises(LeaseLost):
            await tree.store.remove(tree.lease)
        assert len(await other.tree(ROOT)) == 2
        assert len(await tree.store.remove(newer)) == 2

    async def test_what_trees_share_stays_until_the_last_is_removed(self, home: Home) -> None:
        tree, other = await grown(home), await grown(home, "other", "its-child")
        await tree.store.remove(tree.lease)
        assert (await other.store.read(SessionId("other"))).events[1].data == LARGE
        await other.store.remove(other.lease)
        assert await other.store.roots() == []
