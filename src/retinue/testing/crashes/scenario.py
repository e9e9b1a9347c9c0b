"""What a user says about the agent that shall be killed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeAlias

from retinue.compose.app import App
from retinue.testing.crashes.site import Site

__all__ = ["CrashScenario", "Drive"]

Drive: TypeAlias = Callable[[App], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashScenario:
    """An agent, its model and its task. All functions stand at the top level of a module: other processes load it.

    The replies of the model must follow from the request alone, since the process that gave the last one is dead. Two
    runs without a crash must come to the same end.
    """

    name: str
    open: Callable[[Site], AbstractAsyncContextManager[App]]
    """The app of one process, on the store of its site: `site.open(model)`, or `retinue.open` with `site.store()`."""
    start: Drive
    """What the first process does. It returns when all has come to rest."""
    resume: Drive | None = None
    """What each later process does, if any session is stored; None = the same as the first."""
    smooth: Callable[[str], str] | None = None
    """What a line of the end state is compared as, where a crash may change its words. A line that becomes empty is
    not compared."""
    patience_s: float = 20.0
    """After so long a process that has not come to rest is a failure."""
