"""Contract, part 3: at most one living process drives a tree, and a late one is kept out by its fence."""

from __future__ import annotations

import pytest

from retinue.base.ids import SessionId
from retinue.errors import LeaseLost, SessionHeld
from retinue.session.events import TurnStart
from retinue.session.store import Lease, SessionStore
from tests.store.contract import Tree, append, commit
from tests.store.homes import Home

ROOT = SessionId("root")
TERM_S = 30.0


async def is_held(store: SessionStore) -> bool:
    try:
        await store.acquire(ROOT)
    except SessionHeld:
        return True
    return False


class Leases:
    async def test_a_tree_that_does_not_exist_can_be_acquired(self, home: Home) -> None:
        store = home.open()
        lease = await store.acquire(ROOT)
        assert lease.root == ROOT
        assert lease.fence >= 1
        assert await store.summary(ROOT) is None

    async def test_a_lease_is_trusted_for_half_its_term(self, home: Home) -> None:
        store = home.open()
        await home.clock.advance(100)
        assert (await store.acquire(ROOT)).valid_until_s == 100 + TERM_S / 2

    async def test_asking_again_gives_a_new_fence(self, home: Home) -> None:
        store = home.open()
        tree = await Tree.planted(store)
        again = await store.acquire(ROOT)
        assert again.fence > tree.lease.fence
        assert again.owner == tree.lease.owner
        assert isinstance(tree.refused(append("root", 0, TurnStart(1))), LeaseLost)
        Tree(store, again).commit(append("root", 0, TurnStart(1)))

    async def test_the_lease_of_a_living_process_is_not_taken(self, home: Home) -> None:
        tree, other = await Tree.planted(home.open()), home.open()
        with pytest.raises(SessionHeld, match="'root'.*process.*try again in"):
            await other.acquire(ROOT)
        await home.clock.advance(TERM_S - 1)
        assert await is_held(other)
        tree.commit(append("root", 0, TurnStart(1)))

    @pytest.mark.parametrize("seconds", [1e6, -1e6])
    async def test_a_wall_clock_that_is_set_takes_no_lease_from_anybody(self, home: Home, seconds: float) -> None:
        tree, other = await Tree.planted(home.open()), home.open()
        home.clock.set_wall(seconds)
        assert await is_held(other)
        assert await tree.store.renew([tree.lease]) != [None]
        home.clock.set_wall(-2 * seconds)
        await home.clock.advance(TERM_S - 1)
        assert await is_held(other)
        await home.clock.advance(2)
        assert not await is_held(other), "a lease that nobody renews runs out in its own time"

    async def test_trees_are_held_one_by_one(self, home: Home) -> None:
        await Tree.planted(home.open(), "one")
        await Tree.planted(home.open(), "two")

    async def test_the_lease_of_a_dead_process_is_taken_at_once(self, home: Home) -> None:
        tree, other = await Tree.planted(home.open()), home.open()
        home.kill(tree.store)
        lease = await other.acquire(ROOT)
        assert lease.fence > tree.lease.fence
        assert lease.owner != tree.lease.owner
        (outcome,) = commit(other, tree.batch(append("root", 0, TurnStart(1))))
        assert isinstance(outcome, LeaseLost)

    async def test_an_expired_lease_is_taken_and_its_late_owner_is_refused(self, home: Home) -> None:
        tree, other = await Tree.planted(home.open()), home.open()
        await home.clock.advance(TERM_S + 1)
        lease = await other.acquire(ROOT)
        assert lease.fence > tree.lease.fence
        assert isinstance(tree.refused(append("root", 0, TurnStart(1))), LeaseLost)
        assert await tree.store.renew([tree.lease]) == [None]
        assert await is_held(tree.store)
        Tree(other, lease).commit(append("root", 0, TurnStart(1)))

    async def test_an_expired_lease_that_nobody_took_still_holds(self, home: Home) -> None:
        tree = await Tree.planted(home.open())
        await home.clock.advance(TERM_S * 3)
        tree.commit(append("root", 0, TurnStart(1)))
        (renewed,) = await tree.store.renew([tree.lease])
        assert renewed is not None
        assert renewed.fence == tree.lease.fence

    async def test_renewing_keeps_others_out(self, home: Home) -> None:
        tree, other = await Tree.planted(home.open()), home.open()
        for _ in range(4):
            await home.clock.advance(TERM_S - 10)
            now_s = home.clock.elapsed_s()
            (renewed,) = await tree.store.renew([tree.lease])
            assert renewed == Lease(
                root=ROOT, fence=tree.lease.fence, owner=tree.lease.owner, valid_until_s=now_s + TERM_S / 2
            )
            assert await is_held(other)
        tree.commit(append("root", 0, TurnStart(1)))

    async def test_renewing_answers_for_each_lease(self, home: Home) -> None:
        store, other = home.open(), home.open()
        names = [SessionId(f"root-{i}") for i in range(3)]
        leases = [await store.acquire(name) for name in names]
        await store.release(leases[1])
        taken = await other.acquire(names[1])
        renewed = await store.renew([*leases, taken])
        assert [lease is not None for lease in renewed] == [True, False, True, False]
        assert await store.renew([]) == []

    async def test_a_released_tree_is_free_and_its_old_fence_is_void(self, home: Home) -> None:
        tree, other = await Tree.planted(home.open()), home.open()
        await tree.store.release(tree.lease)
        assert isinstance(tree.refused(append("root", 0, TurnStart(1))), LeaseLost)
        assert await tree.store.renew([tree.lease]) == [None]
        assert (await other.acquire(ROOT)).fence > tree.lease.fence

    async def test_releasing_a_lost_lease_changes_nothing(self, home: Home) -> None:
        tree, other = await Tree.planted(home.open()), home.open()
        await tree.store.release(tree.lease)
        taken = await other.acquire(ROOT)
        await tree.store.release(tree.lease)
        await tree.store.release(taken)
        assert await other.renew([taken]) != [None]
        assert await is_held(tree.store)

    async def test_releasing_an_old_fence_keeps_the_new_one(self, home: Home) -> None:
        store = home.open()
        old = await store.acquire(ROOT)
        new = await store.acquire(ROOT)
        await store.release(old)
        assert await store.renew([old, new]) == [None, new]

    async def test_fences_only_grow(self, home: Home) -> None:
        fences: list[int] = []
        for ending in ("close", "release", "kill", "expire", "release"):
            store = home.open()
            lease = await store.acquire(ROOT)
            fences.append(lease.fence)
            if ending == "close":
                await store.aclose()
            elif ending == "release":
                await store.release(lease)
            elif ending == "kill":
                home.kill(store)
            else:
                await home.clock.advance(TERM_S + 1)
        assert fences == sorted(set(fences))

    async def test_closing_a_store_frees_its_trees(self, home: Home) -> None:
        tree, other = await Tree.planted(home.open()), home.open()
        await tree.store.aclose()
        assert not await is_held(other)
