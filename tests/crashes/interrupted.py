"""A parent interrupts a child in the middle of its turn, and the child's own child goes on."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from retinue.compose.app import App
from retinue.testing.crashes import CrashScenario, Site, run_task
from retinue.testing.gate import Gate
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, hold, text
from tests.crashes.stage import answering, delegate, has_aborted, has_notice, whenever

__all__ = ["INTERRUPTED"]

_deep = Gate("the child is deep in thought, or was interrupted")
_never = Gate("never")


def _root(seen: SeenRequest) -> Reply:
    if not seen.results:
        return delegate("C")
    if len(seen.results) == 1:
        return hold(_deep, calls(call("interrupt_agent", agent_id=seen.find(r"Agent (agent-\w+) is at work"))))
    return text("noted")


def _c(seen: SeenRequest) -> Reply:
    if not seen.results:
        return delegate("G")
    if has_notice(seen, "G"):
        return text("G is done, and so am I")
    _deep.open()
    return hold(_never, text("never said"))


def _g(seen: SeenRequest) -> Reply:
    return hold(_ended, text("G is done"))


_ended = Gate("the turn of the child has ended")


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    return site.open(answering(root=_root, C=_c, G=_g))


def _is_over() -> None:
    _deep.open()
    _ended.open()


async def _drive(app: App) -> None:
    async with whenever(app, _is_over, has_aborted):
        await run_task(app, "Start something and stop it.")


INTERRUPTED = CrashScenario(name="interrupted", open=_open, start=_drive)
