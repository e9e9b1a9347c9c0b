"""The writer keeps the order of what is submitted, whatever the store does with it."""

from __future__ import annotations

from typing import cast

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.base.clock import SystemClock
from retinue.errors import IdConflict, StoreFailure, StoreLocked
from retinue.session.rows import Committed
from retinue.session.store import Outcome
from retinue.testing.clock import FakeClock
from tests.session.desk import Desk, batch, number, turns


async def test_everything_of_one_tick_goes_into_one_transaction() -> None:
    desk = Desk()
    desk.submit(1, 2, 3)
    assert desk.store.groups == []
    assert desk.outcomes == []
    await desk.writer.committed()
    assert desk.store.groups == [[1, 2, 3]]
    assert desk.done == [1, 2, 3]


async def test_what_is_submitted_meanwhile_goes_into_the_next_transaction() -> None:
    desk = Desk(late=True)
    desk.submit(1)
    await turns()
    desk.submit(2, 3)
    await turns()
    assert desk.store.groups == [[1]]
    assert [number(b) for b in desk.writer.unfinished()] == [1, 2, 3]
    desk.store.answer()
    desk.submit(4)
    await turns()
    assert desk.store.groups == [[1], [2, 3, 4]]
    desk.store.answer()
    assert desk.done == [1, 2, 3, 4]
    assert list(desk.writer.unfinished()) == []
    assert desk.writer.finished == 4


async def test_a_transaction_takes_at_most_so_many_batches() -> None:
    desk = Desk()
    desk.submit(*range(1200))
    await desk.writer.committed()
    assert [len(group) for group in desk.store.groups] == [512, 512, 176]
    assert desk.done == list(range(1200))


async def test_waiting_ends_with_what_was_submitted_before_it() -> None:
    desk = Desk(late=True)
    desk.submit(1)
    await turns()
    async with anyio.create_task_group() as tg:
        tg.start_soon(desk.writer.committed)
        await turns()
        desk.submit(2)
        desk.store.answer()
        await turns()
    assert desk.done == [1]


async def test_waiting_for_nothing_returns_at_once() -> None:
    desk = Desk()
    await desk.writer.committed()
    desk.submit(1)
    await desk.writer.committed()
    await desk.writer.committed()


async def test_a_refused_batch_ends_the_wait_too_and_is_told_to_its_owner_alone() -> None:
    desk = Desk()
    desk.store.refused = {2}
    desk.submit(1, 2, 3)
    await desk.writer.committed()
    assert [type(outcome) for _, outcome in desk.outcomes] == [Committed, IdConflict, Committed]


async def test_an_owner_that_fails_keeps_nobody_from_its_outcome(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()

    def fails(outcome: Outcome) -> None:
        desk.outcomes.append((1, outcome))
        raise RuntimeError("broken owner")

    desk.writer.submit(batch(1), fails)
    desk.submit(2)
    await desk.writer.committed()
    desk.submit(3)
    await desk.writer.committed()
    assert desk.done == [1, 2, 3]
    assert "broken owner" in caplog.text


async def test_submitting_from_an_outcome_is_fine() -> None:
    desk = Desk()
    desk.writer.submit(batch(1), lambda _: desk.submit(2))
    await desk.writer.committed()
    await desk.writer.committed()
    assert desk.done == [2]
    assert desk.store.groups == [[1], [2]]


async def test_a_cancelled_wait_changes_nothing_for_the_others() -> None:
    desk = Desk(late=True)
    desk.submit(1)
    await turns()
    finished: list[str] = []

    async def wait(name: str) -> None:
        await desk.writer.committed()
        finished.append(name)

    async with anyio.create_task_group() as tg:
        tg.start_soon(wait, "first")
        with anyio.CancelScope() as scope:
            tg.start_soon(wait, "third")
            await turns()
            scope.cancel()
            await desk.writer.committed()
        desk.store.answer()
    assert finished == ["first", "third"]
    assert desk.done == [1]


# A store that is busy or broken.


async def test_a_busy_store_is_tried_again_in_the_same_order() -> None:
    desk = Desk(clock=SystemClock())
    desk.store.busy = 3
    desk.submit(1, 2)
    await turns()
    desk.submit(3)
    await desk.writer.committed()
    assert desk.store.groups == [[1, 2, 3]]
    assert desk.done == [1, 2, 3]


async def test_a_store_that_stays_busy_refuses_all_that_waits_and_then_works_again() -> None:
    clock = FakeClock()
    desk = Desk(clock=clock)
    desk.store.busy = 1_000_000
    desk.submit(1)
    await turns()
    await clock.advance(29)
    desk.submit(2)
    await anyio.sleep(0.01)
    assert desk.outcomes == []
    await clock.advance(2)
    await desk.writer.committed()
    assert [type(outcome) for _, outcome in desk.outcomes] == [StoreLocked, StoreLocked]
    assert "30 s by process 7" in str(desk.outcomes[0][1])

    desk.store.busy = 2
    desk.submit(3)
    await desk.writer.committed()
    assert desk.outcomes[-1] == (3, Committed())


async def test_refusals_in_between_do_not_add_up_to_a_locked_store() -> None:
    clock = FakeClock()
    desk = Desk(clock=clock)
    desk.store.refused = {1, 2, 3, 4}
    for n in (1, 2, 3, 4):
        desk.store.busy = 1
        desk.submit(n)
        await desk.writer.committed()
        await clock.advance(20)
    assert [type(outcome) for _, outcome in desk.outcomes] == [IdConflict] * 4


async def test_a_store_that_breaks_fails_the_group_and_the_next_one_is_tried() -> None:
    desk = Desk()
    desk.store.broken = 1
    desk.submit(1, 2)
    await desk.writer.committed()
    desk.submit(3)
    await desk.writer.committed()
    assert [type(outcome) for _, outcome in desk.outcomes] == [StoreFailure, StoreFailure, Committed]
    assert isinstance(cast("Exception", desk.outcomes[0][1]).__cause__, OSError)


async def test_closing_waits_for_every_outcome_though_it_is_cancelled() -> None:
    desk = Desk(late=True)
    desk.submit(1)
    await turns()
    async with anyio.create_task_group() as tg:
        tg.start_soon(desk.writer.aclose)
        await turns()
        tg.cancel_scope.cancel()
        await anyio.lowlevel.cancel_shielded_checkpoint()
        desk.store.answer()
    assert desk.done == [1]


# Whatever happens.

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 5)),
        st.tuples(st.just("answer"), st.just(0)),
        st.tuples(st.just("busy"), st.integers(1, 3)),
        st.tuples(st.just("broken"), st.just(1)),
        st.tuples(st.just("turn"), st.integers(1, 3)),
        st.tuples(st.just("wait"), st.just(0)),
        st.tuples(st.just("give up"), st.just(0)),
    ),
    max_size=40,
)


@given(steps=STEPS, refused=st.sets(st.integers(0, 50)), late=st.booleans())
def test_order_is_kept_and_every_wait_ends(steps: list[tuple[str, int]], refused: set[int], late: bool) -> None:
    async def run() -> None:
        desk = Desk(late=late, clock=SystemClock())
        desk.store.refused = refused
        submitted = 0
        waits: list[int] = []
        ended: list[int] = []

        async def wait(scope: anyio.CancelScope) -> None:
            with scope:
                goal = submitted
                waits.append(goal)
                await desk.writer.committed()
                assert desk.done[:goal] == list(range(goal))
                ended.append(goal)

        scopes: list[anyio.CancelScope] = []
        async with anyio.create_task_group() as tg:
            for step, count in steps:
                if step == "submit":
                    desk.submit(*range(submitted, submitted + count))
                    submitted += count
                elif step == "answer" and desk.store.waiting:
                    desk.store.answer()
                elif step == "busy":
                    desk.store.busy = count
                elif step == "broken":
                    desk.store.broken = count
                elif step == "turn":
                    await turns(count)
                elif step == "wait":
                    scopes.append(anyio.CancelScope())
                    tg.start_soon(wait, scopes[-1])
                elif step == "give up" and scopes:
                    scopes[-1].cancel()
            desk.store.late = False
            while desk.store.waiting:
                desk.store.answer()
            await desk.writer.committed()
        assert desk.done == list(range(submitted))
        given_up = sum(scope.cancel_called for scope in scopes)
        assert len(waits) - given_up <= len(ended) <= len(waits)
        tried = [n for group in desk.store.groups for n in group]
        assert tried == sorted(set(tried))
        assert {n for n, outcome in desk.outcomes if isinstance(outcome, IdConflict)} <= refused

    anyio.run(run)
