"""A copy of the parent, which begins with what the parent knew and answers once, after an earlier turn."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from retinue.compose.app import App
from retinue.testing.crashes import CrashScenario, Site
from retinue.testing.crashes.drive import begin_task
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, text
from tests.crashes.stage import answering, delegate

__all__ = ["FORK"]


def _root(seen: SeenRequest) -> Reply:
    if "Remember the number 7." not in seen.users or len(seen.users) == 1:
        return text("I shall.")
    if seen.results:
        return text(seen.results[-1])
    return calls(call("subagent_fork", description="F", prompt="Say it."))


def _fork(seen: SeenRequest) -> Reply:
    if not seen.results:
        return delegate("C", waits=True)
    number = seen.find(r"the number (\d)")
    return text(f"{number}, says {seen.results[-1]}")


def _c(seen: SeenRequest) -> Reply:
    return text("C")


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    return site.open(answering(root=_root, F=_fork, C=_c))


async def _drive(app: App) -> None:
    await (await begin_task(app, "Remember the number 7.", key="first")).result()
    result = await (await begin_task(app, "Which was it?", key="second")).result()
    assert result.output == "7, says C", result


FORK = CrashScenario(name="fork", open=_open, start=_drive)
