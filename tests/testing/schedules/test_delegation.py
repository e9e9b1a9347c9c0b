"""Delegation keeps its promises in any order of events. `RETINUE_LONG=1` looks at thousands of orders."""

from __future__ import annotations

import os

import pytest

from retinue.testing.schedules import Scenario, explore_schedules
from tests.testing.schedules.scenarios import CHECKS, FAILING, SCENARIOS

FEW, SOME, MANY = 3, 18, 350
"""Schedules of each scenario: in the normal suite, in `scripts/explore`, in `make explore`."""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_delegation_keeps_its_promises_in_any_order(scenario: Scenario) -> None:
    look(scenario, range(FEW))


@pytest.mark.exploration
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_delegation_keeps_its_promises_in_many_orders(scenario: Scenario) -> None:
    look(scenario, range(FEW, MANY if os.environ.get("RETINUE_LONG") else SOME))


def look(scenario: Scenario, seeds: range) -> None:
    allows_errors = scenario in FAILING  # a store that fails is worth an error in the log
    found = explore_schedules(scenario, seeds=seeds, check=CHECKS.get(scenario), errors_logged=allows_errors)
    print(f"{scenario.__name__}: {found.schedules} schedules, {found.distinct} distinct, {found.decisions} decisions")
