"""Time moves when a test says so; gates tell who has come."""

import anyio
import pytest

from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate


async def test_sleepers_wake_in_the_order_in_which_they_are_due() -> None:
    clock, woken = FakeClock(now_ms=0), list[tuple[str, float, int]]()

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.elapsed_s(), clock.now_ms()))

    async with anyio.create_task_group() as group:
        group.start_soon(sleeper, "late", 3)
        group.start_soon(sleeper, "early", 1)
        await clock.wait_sleeping(1)
        assert sorted(clock.sleeping) == [1, 3]
        await clock.advance(0.5)
        assert woken == []
        await clock.advance(5)
    assert woken == [("early", 1, 1000), ("late", 3, 3000)]
    assert (clock.elapsed_s(), clock.now_ms()) == (5.5, 5500)


async def test_one_who_sleeps_again_within_the_time_wakes_again() -> None:
    clock, beats = FakeClock(), list[float]()

    async def beat() -> None:
        while True:
            await clock.sleep(2)
            beats.append(clock.elapsed_s())

    async with anyio.create_task_group() as group:
        group.start_soon(beat)
        await clock.wait_sleeping(2)
        await clock.advance(7)
        group.cancel_scope.cancel()
    assert beats == [2, 4, 6]


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = FakeClock()
    async with anyio.create_task_group() as group:
        group.start_soon(clock.sleep, 1)
        await clock.wait_sleeping(1)
        group.cancel_scope.cancel()
    assert clock.sleeping == ()


async def test_no_sleep_is_no_wait() -> None:
    await FakeClock().sleep(0)


async def test_a_gate_holds_until_it_opens_and_counts_who_came() -> None:
    gate, passed = Gate("g"), list[int]()

    async def walk(number: int) -> None:
        await gate.wait()
        passed.append(number)

    async with anyio.create_task_group() as group:
        group.start_soon(walk, 1)
        group.start_soon(walk, 2)
        await gate.wait_reached(2)
        assert passed == []
        gate.open()
    assert sorted(passed) == [1, 2]
    await walk(3)
    gate.close()
    with pytest.raises(TimeoutError), anyio.fail_after(0):
        await gate.wait()
    assert gate.reached == 4
    assert repr(gate) == "<Gate 'g' closed, reached 4 times>"


def test_a_callback_waits_for_the_gate_too() -> None:
    gate, called = Gate(), list[str]()
    gate.when_open(lambda: called.append("first"))
    assert called == []
    gate.open()
    gate.when_open(lambda: called.append("second"))
    assert called == ["first", "second"]
