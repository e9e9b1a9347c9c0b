"""The exploration notices builds in which a rule of the design was taken back, and nothing in one that is sound."""

from __future__ import annotations

import pytest

from retinue.testing.crashes import CrashReport, CrashScenario, explore_crashes
from tests.crashes.broken import EARLY_CLAIM, RANDOM_REPORT_ID, SETTLED_IN_TWO, SOUND

pytestmark = [pytest.mark.exploration, pytest.mark.timeout(1200)]


def found(scenario: CrashScenario) -> CrashReport:
    report = explore_crashes(scenario)
    with pytest.raises(AssertionError, match=scenario.name):
        report.check()
    return report


def test_a_settlement_outside_its_transaction_leaves_a_parent_untold() -> None:
    report = found(SETTLED_IN_TWO)
    assert all("one-settlement-each" in str(failure) for failure in report.failures)


def test_a_claim_that_is_committed_too_early_loses_its_message() -> None:
    report = found(EARLY_CLAIM)
    assert all("taken, and never read" in str(failure) for failure in report.failures)


def test_a_random_id_makes_another_report_of_the_same_call() -> None:
    report = found(RANDOM_REPORT_ID)
    assert all("made again and is another one now" in str(failure) for failure in report.failures)


def test_the_same_build_without_a_fault_passes() -> None:
    explore_crashes(SOUND).check()
