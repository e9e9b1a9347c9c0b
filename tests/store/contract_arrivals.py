"""Contract, part 5: what one process sends, another that drives the tree finds; and control rows are no messages."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from retinue.base.ids import MessageId, SessionId
from retinue.errors import ClaimConflict, IdConflict
from retinue.model.content import UserMessage
from retinue.session.events import ActivationEnd, ActivationStart
from retinue.session.rows import Batch, Claim, Delivery, Insert, Kind, Park, Settle, Unpark, Withdraw
from retinue.session.store import SessionStore
from tests.store.contract import Tree, append, commit, insert, only, sent
from tests.store.homes import Home

ROOT, CHILD = SessionId("root"), SessionId("child")


def order(session: str, id: str, kind: Kind = "interrupt", log_length: int = 3) -> Delivery:
    return Delivery(
        session_id=SessionId(session),
        message=UserMessage(MessageId(id), ()),
        target="next-step",
        wake=False,
        accepted_at=3000,
        kind=kind,
        log_length=log_length,
    )


async def found(store: SessionStore, seen: int | None, roots: Sequence[SessionId] = (ROOT,)) -> tuple[list[str], int]:
    arrivals = await store.arrivals(roots, seen)
    return [row.delivery.id for row in arrivals.rows], arrivals.version


class Arriving:
    async def test_what_others_send_is_found_in_the_order_in_which_it_was_stored(self, home: Home) -> None:
        tree, other = await Tree.planted(home.open(), "root", "child"), home.open()
        _, version = await found(tree.store, None)
        for id, session in (("m1", "child"), ("m2", "root"), ("m3", "child")):
            only(commit(other, Batch((insert(session, id, prepend=id == "m3"),))))
        assert (await found(tree.store, version))[0] == ["m1", "m2", "m3"]
        arrivals = await tree.store.arrivals([ROOT], version)
        stored = {row.delivery.id: row for id in (ROOT, CHILD) for row in await tree.store.read_rows(id)}
        assert list(arrivals.rows) == [stored[row.delivery.id] for row in arrivals.rows]

    async def test_nothing_is_found_while_nobody_else_has_written(self, home: Home) -> None:
        tree, other = await Tree.planted(home.open()), home.open()
        only(commit(other, Batch((insert("root", "m1"),))))
        ids, version = await found(tree.store, None)
        assert ids == ["m1"]
        assert await found(tree.store, version) == ([], version)
        only(commit(other, Batch((insert("root", "m2"),))))
        assert (await found(tree.store, version))[0] == ["m1", "m2"]

    async def test_only_pending_rows_of_the_trees_asked_for_are_found(self, home: Home) -> None:
        tree, other = await Tree.planted(home.open()), await Tree.planted(home.open(), "elsewhere")
        tree.commit(*[insert("root", id) for id in ("m1", "m2", "m3")])
        tree.commit(Claim(ROOT, (MessageId("m1"),), 1), Withdraw(ROOT, (MessageId("m2"),), "stopped"))
        other.commit(insert("elsewhere", "e1"))
        assert (await found(tree.store, None))[0] == ["m3"]
        assert (await found(tree.store, None, [ROOT, SessionId("elsewhere")]))[0] == ["m3", "e1"]
        assert (await found(tree.store, None, []))[0] == []

    async def test_a_row_that_cannot_be_decoded_hides_no_other(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(insert("root", "m1"), insert("root", "m2"))
        home.put_message(MessageId("m1"), b"{")
        assert (await found(tree.store, None))[0] == ["m2"]

    # Ringing.

    async def test_a_ring_is_heard_by_whoever_drives_the_tree(self, home: Home) -> None:
        tree, other = await Tree.planted(home.open()), home.open()
        heard, elsewhere = anyio.Event(), anyio.Event()
        assert tree.store.listen(heard.set)
        assert other.listen(elsewhere.set)
        driver = await other.ring(ROOT)
        assert driver is not None
        assert driver.startswith("process ")
        with anyio.fail_after(5):
            await heard.wait()
        assert not elsewhere.is_set()

    async def test_nobody_is_rung_for_a_tree_that_nobody_drives(self, home: Home) -> None:
        tree, other = await Tree.planted(home.open()), home.open()
        assert await other.ring(SessionId("never")) is None
        await tree.store.release(tree.lease)
        assert await other.ring(ROOT) is None
        again = await tree.store.acquire(ROOT)
        assert await other.ring(ROOT) is not None
        await home.clock.advance(31)
        assert await other.ring(ROOT) is None
        await tree.store.renew([again])
        home.kill(tree.store)
        assert await other.ring(ROOT) is None

    async def test_whoever_does_not_listen_can_be_rung(self, home: Home) -> None:
        await Tree.planted(home.open())
        assert await home.open().ring(ROOT) is not None

    # Control rows.

    @pytest.mark.parametrize("kind", ["interrupt", "stop"])
    async def test_a_control_row_is_read_back_and_counts_for_nothing(self, home: Home, kind: Kind) -> None:
        tree, other = await Tree.planted(home.open(), "root", "child"), home.open()
        one = order("child", "o1", kind)
        tree.commit(append("child", 0, ActivationStart(1)))
        only(commit(other, Batch((Insert(one),))))
        (row,) = (await tree.store.read(CHILD)).pending
        assert row.delivery == one
        assert (await found(tree.store, None))[0] == ["o1"]
        summary = await tree.store.summary(CHILD)
        assert summary is not None
        assert summary.pending == 0
        assert [member.pending for member in await tree.store.tree(ROOT)] == [0, 0]
        end = append("child", 1, ActivationEnd(epoch=1, outcome="aborted"))
        tree.commit(Settle(CHILD), end)
        assert await tree.store.owing(ROOT) == []

    async def test_a_control_row_is_answered_once(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(Insert(order("root", "o1")), Insert(order("root", "o2")))
        tree.commit(Claim(ROOT, (MessageId("o1"),), 4), Withdraw(ROOT, (MessageId("o2"),), "moot"))
        assert isinstance(tree.refused(Claim(ROOT, (MessageId("o1"),), 4)), ClaimConflict)
        assert isinstance(tree.refused(Claim(ROOT, (MessageId("o2"),), 4)), ClaimConflict)
        rows = [(row.state, row.turn, row.reason) for row in await tree.store.read_rows(ROOT)]
        assert rows == [("claimed", 4, None), ("withdrawn", None, "moot")]

    async def test_the_same_order_again_is_the_first_one_whatever_has_happened_since(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(Insert(order("root", "o1", log_length=3)))
        assert tree.commit(Insert(order("root", "o1", log_length=9))).repeated == {"o1"}
        assert [row.delivery.log_length for row in await tree.store.read_rows(ROOT)] == [3]
        assert isinstance(tree.refused(Insert(order("root", "o1", "stop"))), IdConflict)
        assert isinstance(tree.refused(Insert(sent("root", "o1"))), IdConflict)

    async def test_parking_and_unparking_pass_control_rows_by(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(insert("root", "m1"), Insert(order("root", "o1")), Park(ROOT, (MessageId("m1"),)), Unpark(ROOT))
        assert [row.parked for row in await tree.store.read_rows(ROOT)] == [False, False]
