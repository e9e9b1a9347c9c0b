"""Children that their parents wait for, two side by side, one with a child of its own; all with effects outside."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from retinue.compose.app import App
from retinue.testing.crashes import CrashScenario, Site, run_task
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, text
from retinue.tools.function import tool
from tests.crashes.stage import answering, delegate

__all__ = ["FOREGROUND"]


@tool
async def stamp(name: str) -> str:
    """Stamp a name."""
    return f"stamped {name}"


def _root(seen: SeenRequest) -> Reply:
    return text(" and ".join(seen.results)) if seen.results else delegate("A", "B", waits=True)


def _stamping(seen: SeenRequest, name: str) -> Reply:
    """It repeats a call whose outcome is unknown."""
    is_done = any(f"stamped {name}" in result for result in seen.results)
    return text(f"{name} is stamped") if is_done else calls(call("stamp", name=name))


def _a(seen: SeenRequest) -> Reply:
    return _stamping(seen, "A")


def _b(seen: SeenRequest) -> Reply:
    if not any("C is stamped" in result for result in seen.results):
        return delegate("C", waits=True)
    return _stamping(seen, "B")


def _c(seen: SeenRequest) -> Reply:
    return _stamping(seen, "C")


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    return site.open(answering(root=_root, A=_a, B=_b, C=_c), tools=[stamp])


async def _drive(app: App) -> None:
    result = await run_task(app, "Have two things stamped.")
    assert result.output == "A is stamped and B is stamped", result


FOREGROUND = CrashScenario(name="foreground", open=_open, start=_drive)
