"""The writer keeps the order of what is submitted, whatever the store does with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.base.clock import SystemClock
from retinue.base.ids import MessageId, SessionId
from retinue.errors import IdConflict, StoreFailure, StoreLocked
from retinue.session.rows import Batch, Claim, Committed
from retinue.session.store import Outcome, SessionStore, StoreBusy
from retinue.session.writer import Durability, Writer
from retinue.testing.clock import FakeClock


def batch(number: int) -> Batch:
    return Batch((Claim(SessionId("s"), (MessageId(str(number)),), number),))


def number(batch: Batch) -> int:
    (op,) = batch.ops
    assert isinstance(op, Claim)
    return op.turn


class ScriptedStore:
    """Answers when it is told to, and remembers what it was given."""

    def __init__(self, *, late: bool = False) -> None:
        self.late = late
        self.groups: list[list[int]] = []
        self.busy = 0
        self.broken = 0
        self.refused: set[int] = set()
        self.waiting: list[Callable[[], None]] = []
        self.syncs: list[Callable[[Exception | None], None]] = []
        self.sync_fails: Exception | None = None

    def begin(self, batches: Sequence[Batch], done: Callable[[Sequence[Outcome]], None]) -> None:
        if self.busy:
            self.busy -= 1
            raise StoreBusy("process 7")
        if self.broken:
            self.broken -= 1
            raise OSError("no disk")
        numbers = [number(batch) for batch in batches]
        self.groups.append(numbers)
        outcomes = [IdConflict(f"batch {n}") if n in self.refused else Committed() for n in numbers]
        if self.late:
            self.waiting.append(lambda: done(outcomes))
        else:
            done(outcomes)

    def answer(self) -> None:
        self.waiting.pop(0)()

    def begin_sync(self, done: Callable[[Exception | None], None]) -> None:
        if self.sync_fails is not None:
            raise self.sync_fails
        self.syncs.append(done)


class Desk:
    """A writer on a scripted store, and the outcomes of what was submitted."""

    def __init__(self, *, late: bool = False, durability: Durability = "process", clock: Any = None) -> None:
        self.store = ScriptedStore(late=late)
        self.writer = Writer(cast("SessionStore", self.store), clock or FakeClock(), durability)
        self.outcomes: list[tuple[int, Outcome]] = []

    def submit(self, *numbers: int) -> None:
        for n in numbers:
            self.writer.submit(batch(n), lambda outcome, n=n: self.outcomes.append((n, outcome)))

    @property
    def done(self) -> list[int]:
        return [n for n, _ in self.outcomes]


async def turns(count: int = 5) -> None:
    """The loop ran so many turns; whoever could go on has."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


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


# Surviving the machine.


async def test_without_power_safety_nobody_waits_for_the_disk() -> None:
    desk = Desk()
    desk.submit(1)
    await desk.writer.durable()
    assert desk.store.syncs == []


async def test_the_disk_is_waited_for_after_the_commit_and_once_for_many() -> None:
    desk = Desk(durability="power")
    async with anyio.create_task_group() as tg:
        desk.submit(1)
        for _ in range(10):
            tg.start_soon(desk.writer.durable)
        await turns()
        assert desk.done == [1]
        assert len(desk.store.syncs) == 1
        desk.store.syncs[0](None)
    await desk.writer.durable()
    assert len(desk.store.syncs) == 1


async def test_who_comes_during_a_sync_waits_for_the_next_one() -> None:
    desk = Desk(durability="power")
    finished: list[int] = []

    async def durable(n: int) -> None:
        desk.submit(n)
        await desk.writer.durable()
        finished.append(n)

    async with anyio.create_task_group() as tg:
        tg.start_soon(durable, 1)
        await turns()
        tg.start_soon(durable, 2)
        await turns()
        assert len(desk.store.syncs) == 1
        desk.store.syncs[0](None)
        await turns()
        assert finished == [1]
        assert len(desk.store.syncs) == 2
        desk.store.syncs[1](None)
    assert finished == [1, 2]


async def test_a_disk_that_refused_is_never_believed_again() -> None:
    desk = Desk(durability="power")
    failures: list[str] = []

    async def durable() -> None:
        try:
            await desk.writer.durable()
        except StoreFailure as error:
            failures.append(str(error))

    desk.submit(1)
    async with anyio.create_task_group() as tg:
        tg.start_soon(durable)
        tg.start_soon(durable)
        await turns()
        desk.store.syncs[0](OSError("worn out"))
    desk.submit(2)
    await durable()
    assert len(failures) == 3
    assert all("worn out" in failure for failure in failures)
    assert len(desk.store.syncs) == 1
    assert desk.done == [1, 2]


async def test_a_store_that_cannot_begin_to_sync_is_a_disk_that_refused() -> None:
    desk = Desk(durability="power")
    desk.store.sync_fails = StoreFailure("closed")
    desk.submit(1)
    for _ in range(2):
        with pytest.raises(StoreFailure, match="closed"):
            await desk.writer.durable()


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
