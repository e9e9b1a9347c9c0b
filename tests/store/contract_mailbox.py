"""Contract, part 2: mailbox rows, their order, and what becomes of them."""

from __future__ import annotations

import pytest

from retinue.base.ids import MessageId, SessionId
from retinue.errors import ClaimConflict, IdConflict, NotQuiet, StoreFailure
from retinue.model.content import Usage
from retinue.session.events import ActivationEnd, ActivationStart
from retinue.session.rows import Batch, Claim, Committed, Hush, Insert, Park, Replace, Settle, Unpark, Withdraw
from retinue.session.store import SessionStore
from tests.store.contract import Tree, append, commit, insert, sent
from tests.store.homes import Home

ROOT = SessionId("root")


def ids(*names: str) -> tuple[MessageId, ...]:
    return tuple(MessageId(name) for name in names)


async def pending(store: SessionStore, id: str = "root") -> list[str]:
    return [row.delivery.id for row in (await store.read(SessionId(id))).pending]


class Mailboxes:
    async def test_rows_are_ordered_as_they_are_committed(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        first = tree.commit(insert("root", "m1"), insert("child", "c1"), insert("root", "m2"))
        second = tree.commit(insert("root", "m3"))
        m1, m2, m3 = ids("m1", "m2", "m3")
        assert first.orders[m1] < first.orders[m2] < second.orders[m3]
        assert await pending(tree.store) == ["m1", "m2", "m3"]
        assert await pending(tree.store, "child") == ["c1"]

    async def test_a_prepended_row_comes_before_all_others(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(insert("root", "m1", prepend=True), insert("root", "m2"))
        outcome = tree.commit(insert("root", "m3", prepend=True), insert("root", "m4", prepend=True))
        m3, m4 = ids("m3", "m4")
        assert outcome.orders[m4] < outcome.orders[m3]
        assert await pending(tree.store) == ["m4", "m3", "m1", "m2"]

    async def test_a_new_row_comes_behind_those_that_are_done(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        done = tree.commit(insert("root", "m1"), insert("root", "m2")).orders
        tree.commit(Claim(ROOT, ids("m1", "m2"), 1))
        assert max(done.values()) < tree.commit(insert("root", "m3")).orders[MessageId("m3")]

    async def test_a_row_is_read_back_as_it_was_sent(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        usage = Usage(input_tokens=10, output_tokens=3, requests=2, cost_usd=0.25)
        one = sent("root", "m1", target="next-step", wake=False, usage=usage)
        two = sent("root", "m2")
        tree.commit(Insert(one), Insert(two))
        rows = (await tree.store.read(ROOT)).pending
        assert [row.delivery for row in rows] == [one, two]
        assert [(row.state, row.parked, row.turn, row.reason) for row in rows] == [("pending", False, None, None)] * 2
        assert rows == await tree.store.read_rows(ROOT)

    # The same id again.

    async def test_the_same_message_again_changes_nothing(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        order = tree.commit(insert("root", "m0"), insert("root", "m1")).orders[MessageId("m1")]
        before = await tree.store.read_rows(ROOT)
        again = tree.commit(insert("root", "m1", prepend=True))
        assert again == Committed(orders={MessageId("m1"): order}, repeated={MessageId("m1")})
        assert await tree.store.read_rows(ROOT) == before

    async def test_the_same_message_twice_in_one_batch_is_one_row(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        assert tree.commit(insert("root", "m1"), insert("root", "m1")).repeated == {"m1"}
        assert await pending(tree.store) == ["m1"]

    @pytest.mark.parametrize("op", [Claim(ROOT, ids("m1"), 1), Withdraw(ROOT, ids("m1"), "cleared")])
    async def test_the_same_message_after_its_end_stays_at_its_end(self, home: Home, op: Claim | Withdraw) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(insert("root", "m1"), op)
        assert tree.commit(insert("root", "m1")) == Committed(repeated={MessageId("m1")})
        assert await pending(tree.store) == []

    async def test_an_id_means_one_message_in_one_session(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        tree.commit(insert("root", "m1"))
        assert isinstance(tree.refused(insert("root", "m1", "Other words.")), IdConflict)
        assert isinstance(tree.refused(insert("child", "m1")), IdConflict)

    async def test_a_session_that_does_not_exist_takes_nothing(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        outcome = tree.commit(insert("gone", "m1"), insert("root", "m2"), Unpark(SessionId("gone")))
        assert outcome.undelivered == {"m1"}
        assert list(outcome.orders) == ["m2"]
        tree.commit(tree.create("gone", "root"))
        assert await pending(tree.store, "gone") == []
        assert list(tree.commit(insert("gone", "m1")).orders) == ["m1"]

    # Claims.

    async def test_a_claim_names_its_turn(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(insert("root", "m1"), insert("root", "m2"), insert("root", "m3"))
        tree.commit(Claim(ROOT, ids("m3", "m1"), 4))
        rows = await tree.store.read_rows(ROOT)
        assert [(row.delivery.id, row.state, row.turn) for row in rows] == [
            ("m1", "claimed", 4),
            ("m2", "pending", None),
            ("m3", "claimed", 4),
        ]

    async def test_a_row_is_claimed_once(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(insert("root", "m1"), insert("root", "m2"))
        tree.commit(Claim(ROOT, ids("m1"), 1))
        assert isinstance(tree.refused(Claim(ROOT, ids("m1"), 1)), ClaimConflict)
        assert isinstance(tree.refused(Claim(ROOT, ids("m2", "m1"), 2)), ClaimConflict)
        assert await pending(tree.store) == ["m2"]

    async def test_a_withdrawn_row_is_not_claimed(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(insert("root", "m1"), Withdraw(ROOT, ids("m1"), "cleared"))
        assert isinstance(tree.refused(Claim(ROOT, ids("m1"), 1)), ClaimConflict)

    async def test_claiming_nothing_is_fine(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(Claim(ROOT, (), 1))

    # Withdrawing and replacing.

    async def test_withdrawing_takes_what_is_still_pending(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        tree.commit(insert("root", "m1"), insert("root", "m2"), insert("child", "c1"), Claim(ROOT, ids("m1"), 1))
        tree.commit(Withdraw(ROOT, ids("m1", "m2", "c1", "unknown"), "cleared"))
        rows = await tree.store.read_rows(ROOT)
        assert [(row.state, row.turn, row.reason) for row in rows] == [
            ("claimed", 1, None),
            ("withdrawn", None, "cleared"),
        ]
        assert await pending(tree.store, "child") == ["c1"]

    async def test_a_replacement_takes_the_place(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        orders = tree.commit(*[insert("root", id) for id in ("m1", "m2", "m3")]).orders
        outcome = tree.commit(Replace(MessageId("m2"), sent("root", "n2", "Better.", target="next-step")))
        assert outcome == Committed(orders={MessageId("n2"): orders[MessageId("m2")]})
        stored = await tree.store.read(ROOT)
        assert [row.delivery.id for row in stored.pending] == ["m1", "n2", "m3"]
        assert stored.pending[1].delivery == sent("root", "n2", "Better.", target="next-step")
        trail = [(row.delivery.id, row.state, row.reason) for row in await tree.store.read_rows(ROOT)]
        assert trail[1] == ("m2", "withdrawn", "replaced")

    async def test_a_replacement_of_a_parked_row_is_parked(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(insert("root", "m1"), Park(ROOT, ids("m1")), Replace(MessageId("m1"), sent("root", "n1")))
        assert [row.parked for row in (await tree.store.read(ROOT)).pending] == [True]

    async def test_only_a_pending_row_is_replaced(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(insert("root", "m1"), Claim(ROOT, ids("m1"), 1))
        assert isinstance(tree.refused(Replace(MessageId("m1"), sent("root", "n1"))), ClaimConflict)
        assert isinstance(tree.refused(Replace(MessageId("m1"), sent("gone", "n1"))), ClaimConflict)

    # Parking and hushing.

    async def test_parked_rows_stay_pending_until_all_are_unparked(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        tree.commit(*[insert("root", id) for id in ("m1", "m2", "m3")], insert("child", "c1"))
        tree.commit(Park(ROOT, ids("m1", "m3", "c1", "unknown")), Park(SessionId("child"), ids("c1")))
        assert [row.parked for row in (await tree.store.read(ROOT)).pending] == [True, False, True]
        tree.commit(Unpark(ROOT))
        assert [row.parked for row in (await tree.store.read(ROOT)).pending] == [False] * 3
        assert [row.parked for row in (await tree.store.read(SessionId("child"))).pending] == [True]

    async def test_a_parked_row_can_be_claimed_and_is_parked_no_more(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(insert("root", "m1"), insert("root", "m2"), Park(ROOT, ids("m1", "m2")))
        tree.commit(Claim(ROOT, ids("m1"), 1), Withdraw(ROOT, ids("m2"), "cleared"))
        rows = await tree.store.read_rows(ROOT)
        assert [(row.state, row.parked) for row in rows] == [("claimed", False), ("withdrawn", False)]

    async def test_rows_that_are_done_are_not_parked(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(insert("root", "m1"), Claim(ROOT, ids("m1"), 1), Park(ROOT, ids("m1")))
        assert [row.parked for row in await tree.store.read_rows(ROOT)] == [False]

    async def test_a_hushed_row_wakes_nobody(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(insert("root", "m1"), insert("root", "m2"), Hush(ROOT, ids("m1", "unknown")))
        assert [row.delivery.wake for row in (await tree.store.read(ROOT)).pending] == [False, True]
        tree.commit(Claim(ROOT, ids("m2"), 1), Hush(ROOT, ids("m2")))
        assert [row.delivery.wake for row in await tree.store.read_rows(ROOT)] == [False, True]

    # Settling, which is a condition.

    async def test_a_quiet_session_settles(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        child = SessionId("child")
        tree.commit(append("child", 0, ActivationStart(1)), insert("child", "m1"), insert("child", "m2"))
        tree.commit(insert("child", "m3"), Claim(child, ids("m1"), 1), Park(child, ids("m2")), Hush(child, ids("m3")))
        tree.commit(Settle(child), append("child", 1, ActivationEnd(epoch=1, outcome="completed")))

    async def test_a_session_with_a_runnable_message_does_not_settle(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        child = SessionId("child")
        end = append("child", 1, ActivationEnd(epoch=1, outcome="completed"))
        tree.commit(append("child", 0, ActivationStart(1)), insert("child", "m1"))
        assert isinstance(tree.refused(Settle(child), end, insert("root", "notice")), NotQuiet)
        assert await pending(tree.store) == []
        assert len((await tree.store.read(child)).events) == 1
        tree.commit(Claim(child, ids("m1"), 1), Settle(child), end)

    async def test_a_session_with_an_active_child_does_not_settle(self, home: Home) -> None:
        tree = await Tree.planted(home.open(), "root", "child")
        tree.commit(tree.create("grandchild", "child"), append("grandchild", 0, ActivationStart(1)))
        tree.commit(append("child", 0, ActivationStart(1)))
        assert isinstance(tree.refused(Settle(SessionId("child"))), NotQuiet)
        assert isinstance(tree.refused(Settle(ROOT)), NotQuiet)
        tree.commit(Settle(SessionId("grandchild")))
        tree.commit(append("grandchild", 1, ActivationEnd(epoch=1, outcome="error")), Settle(SessionId("child")))

    async def test_the_condition_is_judged_where_it_stands_in_the_batch(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(Settle(ROOT), insert("root", "m1"))
        assert isinstance(tree.refused(insert("root", "m2"), Settle(ROOT)), NotQuiet)

    async def test_only_who_holds_a_tree_settles_in_it(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        (outcome,) = commit(tree.store, Batch((Settle(ROOT),)))
        assert isinstance(outcome, StoreFailure)
        assert isinstance(tree.refused(Settle(SessionId("gone"))), StoreFailure)

    # The whole story of a mailbox.

    async def test_the_trail_keeps_every_row_with_its_end(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        tree.commit(*[insert("root", id) for id in ("m1", "m2", "m3", "m4")])
        tree.commit(Claim(ROOT, ids("m1"), 1))
        tree.commit(Withdraw(ROOT, ids("m2"), "stopped"), Park(ROOT, ids("m3")))
        tree.commit(Replace(MessageId("m4"), sent("root", "n4")), insert("root", "m5", prepend=True))
        rows = await tree.store.read_rows(ROOT)
        assert [(r.delivery.id, r.state, r.parked, r.turn, r.reason) for r in rows] == [
            ("m5", "pending", False, None, None),
            ("m1", "claimed", False, 1, None),
            ("m2", "withdrawn", False, None, "stopped"),
            ("m3", "pending", True, None, None),
            ("m4", "withdrawn", False, None, "replaced"),
            ("n4", "pending", False, None, None),
        ]
        assert rows == sorted(rows, key=lambda row: row.order)
        assert [row for row in rows if row.state == "pending"] == (await tree.store.read(ROOT)).pending
