"""Crash exploration: an agent of yours is killed at every point of a scenario, goes on, and must come to the same end.

Every life of a scenario is a process of its own, forked from a clean one, with a real database; SIGKILL ends it. See
docs/guides/proving.md.
"""

from retinue.testing.crashes.drive import run_task
from retinue.testing.crashes.explore import explore_crashes
from retinue.testing.crashes.report import CrashFailure, CrashReport
from retinue.testing.crashes.scenario import CrashScenario
from retinue.testing.crashes.site import Site

__all__ = ["CrashFailure", "CrashReport", "CrashScenario", "Site", "explore_crashes", "run_task"]
