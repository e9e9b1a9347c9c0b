"""The exploration says what is wrong with a scenario, and with a program."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from retinue.compose.app import App
from retinue.errors import BadInput
from retinue.testing.crashes import CrashScenario, Site, explore_crashes, run_task
from retinue.testing.model import ScriptedModel
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, text
from retinue.tools.function import tool


def _answer(_: SeenRequest) -> Reply:
    return text("done")


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    model = ScriptedModel()
    model.script("root", *[_answer] * 9, every=True)
    return site.open(model)


async def _once(app: App) -> None:
    await run_task(app, "go")


async def _twice(app: App) -> None:
    run = await app.resume("root", "go")
    await run.result()


async def _fails(app: App) -> None:
    raise RuntimeError("no luck today")


async def _leaves_early(app: App) -> None:
    await app.agent(id="root")
    await (await app.resume("root", "go", key="task")).agent.wait_idle()
    app.host.agents.list()[0].follow_up("one more thing")


async def _varies(app: App) -> None:
    await run_task(app, f"go, {os.getpid()}")


SCENARIO = CrashScenario(name="a scenario", open=_open, start=_once)


@pytest.mark.exploration
def test_a_scenario_is_tried_at_all_of_its_points() -> None:
    report = explore_crashes(SCENARIO)
    report.check()
    model = ["at model request 1 of root", "at model reply 1 of root"]
    commits = [point for point in report.points if point not in model]
    assert commits == [
        f"{when} commit {number + 1}" for number in range(len(commits) // 2) for when in ("before", "after")
    ]
    assert len(report.points) == len(commits) + len(model)


@pytest.mark.exploration
def test_a_seed_chooses_some_points_and_some_that_are_killed_twice() -> None:
    report, same = (explore_crashes(SCENARIO, most=2, doubles=1, seed=3) for _ in range(2))
    report.check()
    assert (len(report.points), len(report.doubles)) == (2, 1)
    assert (report.points, report.doubles) == (same.points, same.doubles)


def test_a_failure_names_the_scenario_the_point_the_difference_and_the_way_back() -> None:
    report = explore_crashes(replace(SCENARIO, resume=_twice), only="at model request 1 of root")
    with pytest.raises(AssertionError) as failure:
        report.check()
    said = str(failure.value)
    assert "a scenario, killed at model request 1 of root:" in said
    assert "too much: root got user 'go': read" in said
    assert "only='at model request 1 of root'" in said


def test_a_point_that_no_process_comes_to_is_told() -> None:
    report = explore_crashes(SCENARIO, only="after commit 100")
    report.check()
    assert report.unreached == ["after commit 100"]
    assert report.points == []


def test_a_program_that_fails_is_shown_with_what_it_printed() -> None:
    with pytest.raises(AssertionError, match=r"(?s)comes to no good end without a crash.*no luck today"):
        explore_crashes(replace(SCENARIO, start=_fails))


def test_a_program_that_leaves_work_behind_comes_to_no_good_end() -> None:
    with pytest.raises(AssertionError, match="still owes work"):
        explore_crashes(replace(SCENARIO, start=_leaves_early))


def test_a_scenario_without_one_end_cannot_be_compared() -> None:
    with pytest.raises(AssertionError, match=r"(?s)two undisturbed runs of 'a scenario' differ.*missing: root got"):
        explore_crashes(replace(SCENARIO, start=_varies))


def test_functions_that_no_other_process_finds_are_refused() -> None:
    with pytest.raises(BadInput, match="stand at the top level of a module"):
        explore_crashes(replace(SCENARIO, start=lambda app: _once(app)))


@tool
async def count(folder: str) -> str:
    """Count."""
    path = Path(folder)
    path.write_text(path.read_text() + "x" if path.exists() else "x")
    return "counted"


def _impatient(seen: SeenRequest) -> Reply:
    """It repeats whatever did not go well."""
    if any("counted" in result for result in seen.results):
        return text("done")
    return calls(call("count", folder="count"))


def _open_counting(site: Site) -> AbstractAsyncContextManager[App]:
    model = ScriptedModel()
    model.script("root", *[_impatient] * 9, every=True)
    return site.open(model, tools=[count])


def test_a_tool_whose_outcome_is_unknown_may_run_once_more() -> None:
    report = explore_crashes(replace(SCENARIO, open=_open_counting), only="at the end of count 1 of root")
    report.check()
    assert report.unreached == []
