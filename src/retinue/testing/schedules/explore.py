"""Runs a scenario under many schedules, checks what must hold after each, and says how to see a failure again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import anyio

from retinue.testing.host import no_errors
from retinue.testing.schedules.checks import alive, check_at_rest
from retinue.testing.schedules.loop import run_under
from retinue.testing.schedules.schedule import Schedule
from retinue.testing.schedules.world import World

__all__ = ["COUNT", "Exploration", "Scenario", "explore_schedules", "replay_schedule"]

COUNT = "RETINUE_SCHEDULES"
"""This variable overrides which seeds are looked at: `500` = the first 500, `@17` = seed 17 alone."""

_SHOWN = 20
"""Decisions that a failure shows."""

Scenario = Callable[[World], Awaitable[None]]
"""Builds hosts from what the world gives, uses them, waits until all is at rest, and closes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """What was looked at without finding anything."""

    schedules: int
    distinct: int
    """How many of them differ from all others."""
    decisions: int


def explore_schedules(
    scenario: Scenario,
    *,
    seeds: int | Iterable[int] = 100,
    check: Scenario | None = None,
    errors_logged: bool = False,
) -> Exploration:
    """The scenario holds under the schedule of every seed; an int is so many seeds from 0.

    After each run: the scenario came to its end, its hosts left no task, nobody owes work, every log and mailbox keeps
    the rules of logs, each settlement was read once, nothing logged an error (unless `errors_logged`), and `check`
    passes. Call it without a running loop. The environment variable RETINUE_SCHEDULES overrides `seeds`.
    Raises: AssertionError with the seed, the last decisions, and the call that replays them.
    """
    seen: set[int] = set()
    runs = decisions = 0
    for seed in _seeds(seeds):
        schedule = Schedule(seed)
        failure = _run(scenario, schedule, check, errors_logged)
        if failure is not None:
            shortest = _shortest(scenario, schedule, check, errors_logged)
            raise AssertionError(_report(scenario, schedule, failure, shortest)) from failure
        runs += 1
        decisions += len(schedule.trace)
        seen.add(hash(tuple(schedule.trace)))
    return Exploration(schedules=runs, distinct=len(seen), decisions=decisions)


def replay_schedule(
    scenario: Scenario,
    seed: int,
    *,
    decisions: int | None = None,
    check: Scenario | None = None,
    errors_logged: bool = False,
) -> list[str]:
    """The scenario held under that one schedule; every decision of it, in order.

    After so many `decisions` of the seed whoever came first goes first. Raises: what the scenario or a check raises.
    """
    schedule = Schedule(seed, decisions=decisions)
    failure = _run(scenario, schedule, check, errors_logged)
    if failure is not None:
        raise failure
    return schedule.trace


def _seeds(seeds: int | Iterable[int]) -> Iterable[int]:
    wanted = os.environ.get(COUNT, "")
    if wanted.startswith("@"):
        return (int(wanted[1:]),)
    if wanted:
        return range(int(wanted))
    return range(seeds) if isinstance(seeds, int) else seeds


def _run(scenario: Scenario, schedule: Schedule, check: Scenario | None, errors_logged: bool) -> Exception | None:
    try:
        with no_errors(errors_logged):
            run_under(schedule, lambda: _main(scenario, schedule, check))
    except Exception as error:  # whatever it is: it becomes the finding, with the seed that shows it
        return _only(error)
    return None


async def _main(scenario: Scenario, schedule: Schedule, check: Scenario | None) -> None:
    waiting: list[str] = []
    with anyio.CancelScope() as scope:

        def stuck() -> None:
            waiting.extend(alive(None))
            scope.cancel()

        schedule.on_stuck = stuck
        async with anyio.create_task_group() as users:
            world = World(schedule, users)
            await scenario(world)
            users.cancel_scope.cancel()
    if schedule.why_stuck is not None:
        raise AssertionError("\n- ".join((f"the scenario hangs: {schedule.why_stuck}", *waiting)))
    left = alive(asyncio.current_task())
    assert not left, "\n- ".join(("these tasks are still alive after the scenario", *left))
    await check_at_rest(world.look())
    if check is not None:
        await check(world)


def _only(error: Exception) -> Exception:
    """The one error in a group of one."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _shortest(scenario: Scenario, failed: Schedule, check: Scenario | None, errors_logged: bool) -> int:
    """So few decisions of the seed were enough to fail, as far as bisecting tells."""

    def fails(count: int) -> bool:
        return _run(scenario, Schedule(failed.seed, decisions=count), check, errors_logged) is not None

    low, high = -1, len(failed.trace)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    return high


def _report(scenario: Scenario, schedule: Schedule, failure: Exception, shortest: int) -> str:
    name = getattr(scenario, "__name__", repr(scenario))
    shown = schedule.trace[:shortest][-_SHOWN:]
    first = min(shortest, len(schedule.trace)) - len(shown) + 1
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    return "\n".join(
        (
            f"{name} fails under seed {schedule.seed}: {failure or type(failure).__name__}",
            f"{shortest} of its {len(schedule.trace)} decisions are enough; the last of these:",
            *(f"  {number}. {decision}" for number, decision in enumerate(shown, first)),
            f"again: replay_schedule({name}, seed={schedule.seed}, decisions={shortest})",
            *((f"or: {COUNT}=@{schedule.seed} pytest '{test}'",) if test else ()),
        )
    )
