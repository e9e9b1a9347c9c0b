"""What an exploration does with a scenario: one order for each seed, again when asked, and every failure explained."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys

import anyio
import anyio.lowlevel
import pytest

from retinue.errors import StoreFailure
from retinue.testing.host import start_agent
from retinue.testing.schedules import World, explore_schedules, replay_schedule
from retinue.testing.schedules.explore import COUNT
from retinue.testing.schedules.schedule import Schedule
from retinue.testing.script import call, calls, text
from tests.house.checkout import ROOT as CHECKOUT
from tests.testing.schedules.scenarios import interrupt_and_settlement, tasks_and_suspension
from tests.testing.schedules.stage import plays, quiet, root, stage


@pytest.fixture(autouse=True)
def own_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests say themselves which seeds they look at."""
    monkeypatch.delenv(COUNT, raising=False)


ORDERS: list[tuple[str, ...]] = []


async def three(world: World) -> None:
    """Three of a kind, in the order that the schedule gives."""
    order: list[str] = []

    async def one(name: str) -> None:
        await world.pause(name, "goes")
        order.append(name)

    async with anyio.create_task_group() as group:
        for name in "abc":
            group.start_soon(one, name)
    ORDERS.append(tuple(order))


def test_every_order_comes_and_a_seed_always_gives_the_same() -> None:
    ORDERS.clear()
    found = explore_schedules(three, seeds=100)
    assert len(set(ORDERS)) == 6
    assert (found.schedules, found.distinct, found.decisions) == (100, 6, 300)
    first = list(ORDERS)
    explore_schedules(three, seeds=100)
    assert ORDERS[100:] == first


def test_without_decisions_of_the_seed_who_came_first_goes_first() -> None:
    assert replay_schedule(three, seed=3, decisions=0) == ["a: goes", "b: goes", "c: goes"]


def test_a_seed_replays_the_same_decisions_in_another_process() -> None:
    code = (
        "from retinue.testing.schedules import replay_schedule as replay\n"
        "from tests.testing.schedules.scenarios import *\n"
        "from tests.testing.schedules import scenarios as s\n"
        "for one in (s.interrupt_and_settlement, s.tasks_and_suspension):\n"
        "    print('\\n'.join(replay(one, seed=5)))\n"
    )
    environ = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(CHECKOUT)}
    again = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    here = [*replay_schedule(interrupt_and_settlement, seed=5), *replay_schedule(tasks_and_suspension, seed=5)]
    assert again.stdout.splitlines() == here


def test_the_variable_names_the_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COUNT, "7")
    assert explore_schedules(three, seeds=100).schedules == 7
    monkeypatch.setenv(COUNT, "@4")
    assert explore_schedules(three, seeds=100).schedules == 1


def test_a_failure_tells_the_seed_the_decisions_and_how_to_see_it_again() -> None:
    async def c_is_last(world: World) -> None:
        ORDERS.clear()
        await three(world)
        assert ORDERS[0][-1] == "c", "c was not last"

    with pytest.raises(AssertionError) as failure:
        explore_schedules(c_is_last)
    said = str(failure.value)
    seed = int(said.partition("under seed ")[2].partition(":")[0])
    assert "c was not last" in said
    assert ": goes" in said
    assert f"again: replay_schedule(c_is_last, seed={seed}, decisions=" in said
    assert f"RETINUE_SCHEDULES=@{seed} pytest 'tests/testing/schedules/test_schedules.py::" in said
    with pytest.raises(AssertionError, match="c was not last"):
        replay_schedule(c_is_last, seed)


def test_waiting_for_what_never_comes_is_a_failure_that_says_who_waits() -> None:
    async def waits(world: World) -> None:
        async with stage(world) as host:
            await start_agent(host)
            await anyio.Event().wait()

    with pytest.raises(AssertionError, match="it hangs, since nothing can happen any more") as failure:
        explore_schedules(waits, seeds=1)
    assert "waits in" in str(failure.value)
    assert "<locals>.waits:" in str(failure.value)


def test_going_on_for_ever_is_a_failure() -> None:
    async def again_and_again(world: World) -> None:
        while True:
            await world.pause("it", "goes round")

    with pytest.raises(AssertionError, match="has not ended after"):
        replay_schedule(again_and_again, 1)


def test_time_passes_when_nothing_else_can_happen_and_costs_nothing() -> None:
    async def sleeps(world: World) -> None:
        await world.clock.sleep(1000)
        assert world.clock.elapsed_s() == 1000
        assert world.clock.now_ms() == 1_700_001_000_000
        with anyio.move_on_after(5) as scope:
            await anyio.sleep_forever()
        assert scope.cancelled_caught

    explore_schedules(sleeps, seeds=5)


def test_an_error_that_is_logged_is_a_failure_unless_it_is_allowed() -> None:
    async def logs(_: World) -> None:
        logging.getLogger("retinue").error("the sky falls")

    with pytest.raises(AssertionError, match="the sky falls"):
        explore_schedules(logs, seeds=1)
    explore_schedules(logs, seeds=1, errors_logged=True)


def test_a_task_that_is_left_behind_is_a_failure_that_names_it() -> None:
    left: list[object] = []

    async def leaves(_: World) -> None:
        left.append(asyncio.get_running_loop().create_task(anyio.sleep_forever(), name="the one that stayed"))

    with pytest.raises(AssertionError, match="the one that stayed"):
        explore_schedules(leaves, seeds=1)


def test_work_that_nobody_does_is_a_failure() -> None:
    async def suspends(world: World) -> None:
        plays(world, "R", text("never"))
        async with stage(world) as host:
            await (await root(host)).follow_up("go").wait()

    with pytest.raises(AssertionError, match="it owes work, and nobody does it"):
        explore_schedules(suspends)


def test_chunks_tools_and_commits_are_decisions_and_refusals_are_told() -> None:
    refused: list[str] = []

    async def one(world: World) -> None:
        plays(world, "R", calls(call("work", words="dig")), text("done"))
        async with stage(world, refusals=1) as host:
            try:
                agent = await root(host)
                await agent.follow_up("go").wait()
                await agent.wait_idle()
            except StoreFailure as error:
                refused.append(str(error))
        async with stage(world) as host:
            await quiet(world, host)

    traces = [replay_schedule(one, seed, decisions=None, errors_logged=True) for seed in range(30)]
    kinds = {decision.partition(":")[0] for trace in traces for decision in trace}
    assert {"model of R", "store", "work"} <= kinds
    assert any("work: dig" in trace for trace in traces)
    assert any(decision.startswith("store: refuses") for trace in traces for decision in trace)
    assert set(refused) <= {"refused by the schedule"}


async def test_what_is_withdrawn_does_not_complete() -> None:
    schedule, done = Schedule(0), list[str]()
    kept = schedule.defer("a", "stays", lambda: done.append("a"))
    schedule.withdraw(schedule.defer("b", "goes", lambda: done.append("b")))
    assert schedule.pending == (kept,)
    schedule.rest(None)
    schedule.withdraw(kept)
    await anyio.lowlevel.checkpoint()
    assert done == ["a"]
