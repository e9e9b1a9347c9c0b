"""Every scenario comes to the same end wherever its process is killed, once and twice."""

from __future__ import annotations

import os

import pytest

from retinue.testing.crashes import CrashScenario, explore_crashes
from retinue.testing.crashes.plugin import Crashes
from tests.crashes.absent import ABSENT
from tests.crashes.asking import ASKING
from tests.crashes.crowd import CROWD
from tests.crashes.foreground import FOREGROUND
from tests.crashes.fork import FORK
from tests.crashes.interrupted import INTERRUPTED
from tests.crashes.nested import NESTED
from tests.crashes.new_epoch import NEW_EPOCH
from tests.crashes.parked import PARKED
from tests.crashes.ralph import RALPH
from tests.crashes.same_epoch import SAME_EPOCH
from tests.crashes.slow_to_stop import SLOW_TO_STOP
from tests.crashes.structured import STRUCTURED
from tests.crashes.tasks import TASKS
from tests.crashes.workflow import WORKFLOW

_SCENARIOS = (
    NESTED,
    FOREGROUND,
    SAME_EPOCH,
    NEW_EPOCH,
    INTERRUPTED,
    SLOW_TO_STOP,
    PARKED,
    CROWD,
    ABSENT,
    TASKS,
    FORK,
    STRUCTURED,
    WORKFLOW,
    RALPH,
    ASKING,
)
_POINTS, _DOUBLES = (None, 40) if os.environ.get("RETINUE_LONG") else (15, 5)


@pytest.mark.exploration
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("scenario", _SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_end_is_the_same_wherever_the_process_was_killed(scenario: CrashScenario, crashes: Crashes) -> None:
    report = crashes(scenario, most=_POINTS, doubles=_DOUBLES)
    assert report.points


def test_a_few_points_of_one_scenario(crashes: Crashes) -> None:
    report = crashes(NEW_EPOCH, most=3, doubles=1)
    assert len(report.points) == 3


def test_an_order_to_interrupt_holds_although_the_process_dies_before_it_is_obeyed() -> None:
    report = explore_crashes(SLOW_TO_STOP, only="at model request 3 of root")
    report.check()
    assert report.unreached == []
