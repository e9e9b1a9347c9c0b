"""Slots for children: order of arrival, two limits, lending, and nobody left behind."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.base.ids import SessionId
from retinue.errors import BadInput
from retinue.subagent.admission import Admission, Limits

P, Q = SessionId("P"), SessionId("Q")


def ids(count: int) -> list[SessionId]:
    return [SessionId(f"c{n}") for n in range(count)]


async def settle(until: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds; the test's own timeout bounds it."""
    while not until():
        await anyio.lowlevel.checkpoint()


async def test_who_finds_no_slot_waits_and_is_served_in_order_of_arrival() -> None:
    admission, served = Admission(Limits(concurrent=1)), list[SessionId]()
    first, *others = ids(4)
    await admission.acquire(first, P)

    async def work(child: SessionId) -> None:
        await admission.acquire(child, P)
        served.append(child)

    async with anyio.create_task_group() as group:
        for number, child in enumerate(others, 1):
            group.start_soon(work, child)
            await settle(lambda number=number: admission.waiting == number)
        admission.release(first)
        for child in others:
            await settle(lambda child=child: child in served)
            admission.release(child)
    assert served == others


async def test_a_full_parent_does_not_hold_up_the_children_of_another() -> None:
    admission = Admission(Limits(concurrent=10, concurrent_per_parent=1))
    a, b, c = ids(3)
    await admission.acquire(a, P)
    async with anyio.create_task_group() as group:
        group.start_soon(admission.acquire, b, P)
        await settle(lambda: admission.waiting == 1)
        group.start_soon(admission.acquire, c, Q)
        await settle(lambda: admission.waiting == 2)
        admission.release(a)
        await settle(lambda: admission.waiting == 0)


async def test_a_slot_that_is_held_is_not_taken_twice() -> None:
    admission = Admission(Limits(concurrent=1))
    (a,) = ids(1)
    await admission.acquire(a, P)
    await admission.acquire(a, P)
    admission.release(a)
    admission.release(a)
    assert admission.ahead_of(P) == 0


async def test_a_cancelled_waiter_leaves_the_queue_and_takes_no_slot() -> None:
    admission = Admission(Limits(concurrent=1))
    a, b = ids(2)
    await admission.acquire(a, P)
    async with anyio.create_task_group() as group:
        group.start_soon(admission.acquire, b, P)
        await settle(lambda: admission.waiting == 1)
        group.cancel_scope.cancel()
    assert admission.waiting == 0
    admission.release(a)
    assert admission.ahead_of(P) == 0


async def test_a_waiter_that_is_cancelled_in_the_instant_of_admission_has_the_slot_or_gave_it_back() -> None:
    admission, taken = Admission(Limits(concurrent=1)), list[SessionId]()
    a, b = ids(2)
    await admission.acquire(a, P)

    async def take() -> None:
        await admission.acquire(b, P)
        taken.append(b)

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        await settle(lambda: admission.waiting == 1)
        admission.release(a)
        group.cancel_scope.cancel()
    for child in taken:
        admission.release(child)
    assert admission.ahead_of(P) == 0


async def test_a_chain_of_waiting_parents_needs_one_slot_only() -> None:
    admission, deepest = Admission(Limits(concurrent=1)), list[int]()

    async def nested(depth: int, parent: SessionId) -> None:
        child = SessionId(f"depth-{depth}")
        await admission.acquire(child, parent)
        if depth < 5:
            async with admission.lent(child):
                await nested(depth + 1, child)
        deepest.append(depth)
        admission.release(child)

    await nested(0, P)
    assert deepest == [5, 4, 3, 2, 1, 0]


async def test_who_waits_for_several_has_a_slot_again_when_the_last_has_ended() -> None:
    admission = Admission(Limits(concurrent=1))
    waiting, both_wait, first_ended = SessionId("waiting"), anyio.Event(), anyio.Event()
    await admission.acquire(waiting, P)

    async def first() -> None:
        async with admission.lent(waiting):
            await both_wait.wait()
            await admission.acquire(SessionId("first"), waiting)
            admission.release(SessionId("first"))
        first_ended.set()

    async def second() -> None:
        async with admission.lent(waiting):
            both_wait.set()
            await first_ended.wait()  # it asks for room when the first does not need it any more
            await admission.acquire(SessionId("second"), waiting)
            admission.release(SessionId("second"))

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        group.start_soon(second)
    assert admission.ahead_of(P) == 1
    admission.release(waiting)
    assert admission.ahead_of(P) == 0


async def test_lending_what_is_not_held_changes_nothing() -> None:
    admission = Admission(Limits(concurrent=1))
    async with admission.lent(SessionId("root")):
        pass
    assert admission.ahead_of(P) == 0


@pytest.mark.parametrize("limits", [Limits(concurrent=0), Limits(concurrent_per_parent=0)])
def test_limits_below_one_are_refused(limits: Limits) -> None:
    with pytest.raises(BadInput, match="at least 1"):
        Admission(limits)


@given(
    width=st.integers(1, 3),
    per_parent=st.integers(1, 3),
    parents=st.lists(st.sampled_from([P, Q]), min_size=1, max_size=12),
)
def test_everybody_is_served_and_no_limit_is_passed(width: int, per_parent: int, parents: list[SessionId]) -> None:
    async def scenario() -> None:
        admission = Admission(Limits(concurrent=width, concurrent_per_parent=per_parent))
        working: dict[SessionId, SessionId] = {}
        done: list[SessionId] = []

        async def work(child: SessionId, parent: SessionId) -> None:
            await admission.acquire(child, parent)
            working[child] = parent
            assert len(working) <= width
            assert list(working.values()).count(parent) <= per_parent
            await anyio.lowlevel.checkpoint()
            del working[child]
            done.append(child)
            admission.release(child)

        async with anyio.create_task_group() as group:
            for child, parent in zip(ids(len(parents)), parents, strict=True):
                group.start_soon(work, child, parent)
        assert sorted(done) == sorted(ids(len(parents)))

    anyio.run(scenario)
