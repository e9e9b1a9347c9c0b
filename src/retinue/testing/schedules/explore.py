"""Runs a scenario under many schedules, checks what must hold after each, and says how to see a failure again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import cast

import anyio

from retinue.testing.host import no_errors
from retinue.testing.schedules.checks import alive, check_at_rest
from retinue.testing.schedules.loop import run_under
from retinue.testing.schedules.schedule import Schedule
from retinue.testing.schedules.world import Scenario, World

__all__ = ["COUNT", "Exploration", "explore_schedules", "replay_schedule"]

COUNT = "RETINUE_SCHEDULES"
"""This variable overrides which seeds are looked at: `500` = the first 500, `@17` = seed 17 alone."""

_SHOWN = 20
"""Decisions that a failure shows."""


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
    waiting: list[str] = []
    try:
        with no_errors(errors_logged):
            run_under(schedule, partial(_main, scenario, schedule, check, waiting))
    except Exception as error:  # whatever it is: it becomes the finding, with the seed that shows it
        if schedule.why_stuck is None:
            return _only(error)
    if schedule.why_stuck is not None:
        return AssertionError(_listed(f"it hangs, since {schedule.why_stuck}; who waits", waiting))
    return None


async def _main(scenario: Scenario, schedule: Schedule, check: Scenario | None, waiting: list[str]) -> None:
    with anyio.CancelScope() as scope:

        def stuck() -> None:
            waiting.extend(alive(None))
            scope.cancel()

        schedule.on_stuck = stuck
        world = World(schedule)
        await world.play(scenario)
        left = alive(asyncio.current_task())
        assert not left, _listed("tasks are alive after it", left)
        await check_at_rest(world.look())
        if check is not None:
            await check(world)


def _listed(what: str, lines: list[str]) -> str:
    return "\n- ".join((f"{what}:", *lines))


def _only(error: Exception) -> Exception:
    """The one error in a group of one."""
    if not isinstance(error, ExceptionGroup):
        return error
    group = cast("ExceptionGroup[Exception]", error)
    return _only(group.exceptions[0]) if len(group.exceptions) == 1 else group


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
