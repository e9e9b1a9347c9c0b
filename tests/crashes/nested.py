"""Three levels of children in the background, each of which reports and waits for the one below it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from retinue.compose.app import App
from retinue.testing.crashes import CrashScenario, Site, run_task
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, text
from tests.crashes.stage import answering, delegate, has_notice

__all__ = ["NESTED"]


def _root(seen: SeenRequest) -> Reply:
    return text("noted") if seen.results else delegate("A")


def _above(seen: SeenRequest, below: str) -> Reply:
    if not seen.results:
        return delegate(below)
    if not has_notice(seen, below):
        return text(f"waiting for {below}")
    if not any("Reported" in result for result in seen.results):
        return calls(call("report", output=f"{below} is done"))
    return text(f"done, as is {below}")


def _a(seen: SeenRequest) -> Reply:
    return _above(seen, "B")


def _b(seen: SeenRequest) -> Reply:
    return _above(seen, "C")


def _c(seen: SeenRequest) -> Reply:
    return text("C is done") if seen.results else calls(call("report", output="the bottom is reached"))


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    return site.open(answering(root=_root, A=_a, B=_b, C=_c))


async def _drive(app: App) -> None:
    await run_task(app, "Go down three levels.")


NESTED = CrashScenario(name="nested", open=_open, start=_drive)
