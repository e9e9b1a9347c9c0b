"""A pytest plugin: every folder with a `scenario.yaml` below the tests is a test.

It is loaded by `pytest_plugins = ["retinue.testing.scenario.plugin"]` in the topmost `conftest.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from retinue.testing.scenario.folder import SCENARIO
from retinue.testing.scenario.suite import run

__all__ = ["ScenarioFile", "ScenarioItem", "pytest_collect_file"]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """The file is a test if it describes a scenario."""
    if file_path.name != SCENARIO:
        return None
    return ScenarioFile.from_parent(parent, path=file_path)  # pyright: ignore[reportUnknownMemberType]


class ScenarioFile(pytest.File):
    """One scenario's folder."""

    def collect(self) -> Iterator[pytest.Item]:
        """The one test of it."""
        yield ScenarioItem.from_parent(self, name=self.path.parent.name)  # pyright: ignore[reportUnknownMemberType]


class ScenarioItem(pytest.Item):
    """One scenario. It fails with what differs, not with a traceback."""

    def runtest(self) -> None:
        """The scenario came to what it expects."""
        problems = anyio.run(run, self.path.parent)
        if problems:
            raise AssertionError("\n".join(problems))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The differences alone."""
        if isinstance(excinfo.value, AssertionError):
            return "\n".join(f"{self.name}: {line}" for line in str(excinfo.value).splitlines())
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it stands and what it is called."""
        return self.path, 0, f"scenario {self.name}"
