"""The user interrupts a child that has a message in its queue: the queue is parked, and stays parked."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import anyio

from retinue.base.ids import SessionId
from retinue.compose.app import App
from retinue.testing.crashes import CrashScenario, Site, run_task
from retinue.testing.gate import Gate
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, hold, text
from tests.crashes.stage import answering, continuations, delegate, has_aborted, has_sent, logged

__all__ = ["PARKED"]

_never = Gate("never")
_children: list[SessionId] = []


def _root(seen: SeenRequest) -> Reply:
    if not seen.results:
        return delegate("C")
    if len(seen.results) == 1:
        return calls(call("send_message", subagent_id=seen.find(r"Agent (agent-\w+) is at work"), message="more"))
    return text("noted")


def _c(seen: SeenRequest) -> Reply:
    _children[:] = [seen.session_id]
    return hold(_never, text("never said"))


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    return site.open(answering(root=_root, C=_c))


async def _interrupt(app: App) -> None:
    """As soon as the child is at work and has its message, unless it was interrupted before."""
    await logged(app, has_sent)
    await _never.wait_reached()
    continuations(app).interrupt(_children[0], None)


async def _drive(app: App) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(_interrupt, app)
        await run_task(app, "Give somebody two things to do.")
        await logged(app, has_aborted)
        group.cancel_scope.cancel()


PARKED = CrashScenario(name="parked", open=_open, start=_drive)
