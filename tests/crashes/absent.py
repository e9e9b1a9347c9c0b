"""The parent is closed while its child is at work: the child settles into a mailbox that nobody reads until later."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from retinue.compose.app import App
from retinue.session.events import Event, ToolReturned
from retinue.testing.crashes import CrashScenario, Site
from retinue.testing.crashes.drive import begin_task
from retinue.testing.gate import Gate
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, hold, text
from tests.crashes.stage import answering, delegate, has_message, logged, settled

__all__ = ["ABSENT"]

_never = Gate("never")


def _root(seen: SeenRequest) -> Reply:
    return text("noted") if seen.results else delegate("C")


def _c(seen: SeenRequest) -> Reply:
    return hold(_never, text("never said"))


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    return site.open(answering(root=_root, C=_c))


def _is_started(event: Event) -> bool:
    return isinstance(event.data, ToolReturned)


async def _drive(app: App) -> None:
    if not await settled(app):
        run = await begin_task(app, "Start something.")
        await logged(app, _is_started)
        await run.agent.wait_idle()
        await app.close(run.agent)
    run = await begin_task(app, "What became of it?", key="later")
    await run.result()
    await logged(app, has_message("What became of it?"))


ABSENT = CrashScenario(name="absent parent", open=_open, start=_drive)
