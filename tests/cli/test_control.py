"""How a headless run is stopped: what a suspension does before there is a run, and when it takes too long."""

from __future__ import annotations

import pytest

from retinue.agent.phase import Cause
from retinue.cli.headless.control import Control


@pytest.mark.parametrize(("is_over", "codes"), [(False, [1]), (True, [])])
async def test_what_does_not_let_go_in_time_is_left_to_the_end_of_the_process(is_over: bool, codes: list[int]) -> None:
    ended_with: list[int] = []
    control = Control(ended_with.append, grace_s=0)
    control.suspend()
    control.is_over = is_over
    await control.hasten()
    assert ended_with == codes


async def test_a_limit_that_comes_after_a_suspension_closes_nothing() -> None:
    control = Control(lambda _: None)
    control.suspend()
    control.stop(Cause("limit", "timeout"))
    assert (control.is_suspending, control.limit) == (True, None)


async def test_a_suspension_before_anything_runs_ends_the_opening_and_one_after_it_the_beginning() -> None:
    early, late = Control(lambda _: None), Control(lambda _: None)
    early.suspend()
    assert (early.opening.cancel_called, early.beginning.cancel_called, early.opened()) == (True, False, False)
    assert late.opened()
    late.suspend()
    assert (late.opening.cancel_called, late.beginning.cancel_called) == (False, True)
