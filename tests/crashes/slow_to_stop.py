"""A parent interrupts a child whose tool takes long to stop: the order holds although the process dies meanwhile."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import anyio

from retinue.compose.app import App
from retinue.session.events import AssistantReply, Event
from retinue.testing.crashes import CrashScenario, Site, run_task
from retinue.testing.gate import Gate
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, hold, text
from retinue.tools.function import tool
from tests.crashes.stage import answering, delegate, has_aborted, whenever

__all__ = ["SLOW_TO_STOP"]

_at_work = Gate("the child is at work, or was interrupted")
_told = Gate("the parent has gone on after its order")
_never = Gate("never")


@tool
async def dig() -> str:
    """Dig until somebody says stop, and then put the tools away."""
    try:
        _at_work.open()
        await _never.wait()
        return "dug"
    finally:
        with anyio.CancelScope(shield=True):
            await _told.wait()


def _root(seen: SeenRequest) -> Reply:
    if not seen.results:
        return delegate("C")
    if len(seen.results) == 1:
        return hold(_at_work, calls(call("interrupt_agent", agent_id=seen.find(r"Agent (agent-\w+) is at work"))))
    return text("noted")


def _c(seen: SeenRequest) -> Reply:
    if not seen.results:
        return calls(call("dig"))
    _at_work.open()
    return hold(_never, text("never said"))


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    return site.open(answering(root=_root, C=_c), tools=[dig])


def _is_noted(event: Event) -> bool:
    return isinstance(event.data, AssistantReply) and event.data.message.text == "noted"


async def _drive(app: App) -> None:
    async with whenever(app, _told.open, _is_noted), whenever(app, _at_work.open, has_aborted):
        await run_task(app, "Start something and stop it.")


SLOW_TO_STOP = CrashScenario(name="slow to stop", open=_open, start=_drive)
