"""For pytest: the fixture `crashes`, which explores a scenario as the options ask, and a line about each at the end.

Name it in the `conftest.py` at the top of your tests: `pytest_plugins = ["retinue.testing.crashes.plugin"]`. It needs
pytest, which Retinue itself does not.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from retinue.testing.crashes.explore import explore_crashes
from retinue.testing.crashes.report import CrashReport
from retinue.testing.crashes.scenario import CrashScenario

__all__ = ["Crashes", "crashes", "pytest_addoption", "pytest_terminal_summary"]

_PROPERTY = "crash exploration"


class Crashes:
    """Explores scenarios for one test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._node = request.node
        self._config = request.config

    def __call__(self, scenario: CrashScenario, *, most: int | None = None, doubles: int = 0) -> CrashReport:
        """The scenario was explored as by `explore_crashes`, and nothing was wrong; options come before arguments.

        Raises: AssertionError with what was wrong, and what `explore_crashes` raises.
        """
        points: int | None = self._config.getoption("--crash-points")
        twice: int | None = self._config.getoption("--crash-doubles")
        seed: int | None = self._config.getoption("--crash-seed")
        report = explore_crashes(
            scenario,
            most=most if points is None else points or None,
            doubles=doubles if twice is None else twice,
            seed=seed or 0,
            only=self._config.getoption("--crash-at"),
        )
        self._node.user_properties.append((_PROPERTY, str(report)))
        report.check()
        return report


@pytest.fixture
def crashes(request: pytest.FixtureRequest) -> Crashes:
    """Call it with a CrashScenario."""
    return Crashes(request)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the fixture."""
    group = parser.getgroup("crashes", "crash exploration of Retinue agents")
    group.addoption("--crash-points", type=int, help="try so many points of each scenario; 0: all of them")
    group.addoption("--crash-doubles", type=int, help="kill so many of its processes twice")
    group.addoption("--crash-seed", type=int, help="which points and which pairs are chosen (default: 0)")
    group.addoption("--crash-at", metavar="PLAN", help="try one plan, as a failure names it: 'after commit 17'")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each exploration, also of those that ran in other processes."""
    lines = sorted(_explored(terminalreporter))
    if lines:
        terminalreporter.section("crash exploration")
        for line in lines:
            terminalreporter.write_line(line)


def _explored(reporter: pytest.TerminalReporter) -> Iterable[str]:
    for kind in ("passed", "failed"):
        for report in reporter.getreports(kind):
            yield from (str(text) for name, text in report.user_properties if name == _PROPERTY)
