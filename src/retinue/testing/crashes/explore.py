"""The exploration: an undisturbed run says where a scenario can be killed, and what each killed one must come to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TypeVar

from retinue.testing.crashes.forks import Forks, Lives, forks
from retinue.testing.crashes.life import Account
from retinue.testing.crashes.points import KillPoint, Plan, parse_plan, render_plan
from retinue.testing.crashes.report import CrashFailure, CrashReport
from retinue.testing.crashes.scenario import CrashScenario

__all__ = ["explore_crashes"]

T = TypeVar("T")


def explore_crashes(
    scenario: CrashScenario, *, most: int | None = None, doubles: int = 0, seed: int = 0, only: str | None = None
) -> CrashReport:
    """Every point of the scenario was tried: killed there, gone on with in a new process, compared at the end.

    A point is before and after each commit, at each model request and reply, and where each tool body starts and ends.
    `most` limits the points to so many, spread over the scenario; `doubles` is how often a process is killed twice, the
    second time while it goes on after the first; both choices follow from `seed`. `only` tries one plan, as a failure
    names it. Blocks, for some 0.1 s per point. The report holds the failures; `check` raises them.
    Raises: AssertionError if the scenario comes to no good end, or not to one end, by itself; BadInput for one that
    another process cannot load, for words that are no plan, and where processes cannot be forked.
    """
    report = CrashReport(scenario=scenario.name)
    begun = time.monotonic()
    with forks(scenario) as server, TemporaryDirectory(prefix="retinue-crashes-") as folder:
        exploration = _Exploration(scenario, server, Path(folder), report)
        if only is not None:
            exploration.attempt(parse_plan(only))
        else:
            random = Random(f"{scenario.name}/{seed}")
            after = exploration.singles(_spread(exploration.points, most, random))
            exploration.twice(after, doubles, random)
    report.seconds = time.monotonic() - begun
    return report


class _Exploration:
    def __init__(self, scenario: CrashScenario, server: Forks, folder: Path, report: CrashReport) -> None:
        self._scenario = scenario
        self._server = server
        self._folder = folder
        self._report = report
        self._count = 0
        first, again = self._run(()), self._run(())
        self._expected = _sound(scenario, first)
        apart = list(_apart(self._expected, _sound(scenario, again)))
        if apart:
            raise AssertionError(
                f"two undisturbed runs of {scenario.name!r} differ, so no other can be compared with them; make what "
                f"the model answers follow from the request alone, or `smooth` what may differ:{_listed(apart)}"
            )
        self.points = list(dict.fromkeys(moment.point for moment in first.moments))

    def _run(self, plan: Plan) -> Lives:
        self._count += 1
        return self._server.run(plan, self._folder / str(self._count))

    def singles(self, points: Sequence[KillPoint]) -> list[tuple[KillPoint, list[KillPoint]]]:
        """Each point was tried; the answer has what the process after it came to, for those that were reached."""
        after: list[tuple[KillPoint, list[KillPoint]]] = []
        for point in points:
            lives = self.attempt((point,))
            if lives.kills:
                self._report.points.append(str(point))
                after.append((point, [moment.point for moment in lives.moments if moment.life == 2]))
        return after

    def twice(self, after: Sequence[tuple[KillPoint, list[KillPoint]]], count: int, random: Random) -> None:
        """So many pairs were tried."""
        pairs = [(first, second) for first, seconds in after for second in seconds]
        for plan in _spread(pairs, count, random):
            if self.attempt(plan).kills == len(plan):
                self._report.doubles.append(render_plan(plan))

    def attempt(self, plan: Plan) -> Lives:
        """The plan was tried, and the report knows what was wrong."""
        lives = self._run(plan)
        if lives.kills < len(plan):
            self._report.unreached.append(render_plan(plan))
        problems = (
            [lives.failure or "it left no account"]
            if lives.account is None
            else [*lives.account.problems, *_apart(self._expected, lives.account), *_ran(self._expected, lives.account)]
        )
        if problems:
            self._report.failures.append(
                CrashFailure(scenario=self._scenario.name, plan=plan, problems=tuple(problems))
            )
        return lives


def _sound(scenario: CrashScenario, lives: Lives) -> Account:
    problems = [lives.failure or "it left no account"] if lives.account is None else lives.account.problems
    if problems or lives.account is None:
        raise AssertionError(f"{scenario.name!r} comes to no good end without a crash:{_listed(problems)}")
    return lives.account


def _apart(expected: Account, came: Account) -> Iterator[str]:
    before, after = Counter(expected.lines), Counter(came.lines)
    yield from (f"missing: {line}" for line in (before - after).elements())
    yield from (f"too much: {line}" for line in (after - before).elements())


def _ran(expected: Account, came: Account) -> Iterator[str]:
    """Bodies that ran more often than without a crash, beyond those whose outcome the model was told is unknown."""
    for name, count in came.bodies.items():
        allowed = expected.bodies.get(name, 0) + came.unknown.get(name, 0)
        if count > allowed:
            yield f"{name} ran {count} times; {allowed} times would be right"


def _spread(items: Sequence[T], most: int | None, random: Random) -> list[T]:
    """At most so many of `items`, in their order, one from each of as many equal stretches."""
    if most is None or most >= len(items):
        return list(items)
    size = len(items) / most if most else 0
    return [items[min(len(items) - 1, int((i + random.random()) * size))] for i in range(most)]


def _listed(problems: Sequence[str]) -> str:
    return "".join(f"\n  - {problem}" for problem in problems)
