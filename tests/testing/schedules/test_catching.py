"""Mistakes that only some orders of events show are found, each within so many seeds."""

from __future__ import annotations

import pytest

from retinue.subagent.supervisor import Supervisor
from retinue.testing.schedules import Scenario, World, explore_schedules, replay_schedule
from retinue.testing.schedules.explore import COUNT
from retinue.testing.script import call, calls, text
from tests.testing.schedules.broken import Hasty, Sleepy, supervised_by, waiting_too_late
from tests.testing.schedules.stage import ROOT, Delegation, below, of, plays, quiet, root, stage

WITHIN = 300
MESSAGES = 5


@pytest.fixture(autouse=True)
def own_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests say themselves which seeds they look at."""
    monkeypatch.delenv(COUNT, raising=False)


def found(scenario: Scenario, check: Scenario | None = None) -> str:
    """What the first seed that fails says."""
    with pytest.raises(AssertionError) as failure:
        explore_schedules(scenario, seeds=WITHIN, check=check)
    return str(failure.value)


def one_child_with_more_to_do(delegation: Delegation) -> Scenario:
    async def scenario(world: World) -> None:
        plays(world, "R", calls(below("C")))
        plays(world, "C", text("one."), text("two."))
        async with stage(world, delegation=delegation) as host:
            agent = await root(host)
            await agent.follow_up("go").wait()
            await of(host).wait_quiet(agent)
            (child,) = [summary.header.id for summary in await host.sessions.store.children(ROOT)]
            for number in range(MESSAGES):
                world.meanwhile("host", f"says more {number}", lambda: of(host).send(agent, child, "more"))
            await quiet(world, host)

    return scenario


async def everything_was_read(world: World) -> None:
    store = world.look()
    for child in await store.children(ROOT):
        rows = await store.read_rows(child.header.id)
        assert [row.state for row in rows] == ["claimed"] * (1 + MESSAGES)


def test_a_settlement_that_puts_a_late_message_aside_is_found() -> None:
    text = found(one_child_with_more_to_do(supervised_by(Hasty)), everything_was_read)
    assert "'pending'" in text


@pytest.mark.exploration
def test_a_supervisor_that_listens_too_late_is_found() -> None:
    text = found(one_child_with_more_to_do(supervised_by(Sleepy)))
    assert "nothing can happen any more" in text
    assert "Sleepy._until_over" in text


def test_the_same_scenario_holds_with_the_supervisor_as_it_is() -> None:
    scenario = one_child_with_more_to_do(supervised_by(Supervisor))
    assert explore_schedules(scenario, seeds=30, check=everything_was_read).schedules == 30


@pytest.mark.exploration
def test_a_wait_that_begins_after_the_end_is_found_and_replays() -> None:
    async def scenario(world: World) -> None:
        plays(world, "R", calls(call("ask", label="C"), call("ask", label="C")))
        plays(world, "C", text("quick."))
        async with stage(world) as host:
            with host.tools.add(waiting_too_late(host)):
                await (await root(host)).follow_up("go").wait()
                await quiet(world, host)

    text_of_failure = found(scenario)
    assert "waiting_too_late.<locals>.ask" in text_of_failure
    seed, decisions = numbers(text_of_failure)
    for _ in range(2):
        with pytest.raises(AssertionError, match="it hangs"):
            replay_schedule(scenario, seed, decisions=decisions)
    assert replay_schedule(scenario, seed, decisions=0)


def numbers(failure: str) -> tuple[int, int]:
    """Seed and decisions of the call that a failure names."""
    call = failure.partition("again: replay_schedule(scenario, ")[2].partition(")")[0]
    seed, decisions = (int(part.partition("=")[2]) for part in call.split(", "))
    return seed, decisions
