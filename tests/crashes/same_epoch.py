"""A parent answers a report: the child, whose own child is still at work, takes the message in the same activation."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from retinue.compose.app import App
from retinue.testing.crashes import CrashScenario, Site, run_task
from retinue.testing.gate import Gate
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, hold, text
from tests.crashes.stage import answering, delegate, has_message, has_notice, whenever

__all__ = ["SAME_EPOCH"]

_heard = Gate("the child has heard more")


def _root(seen: SeenRequest) -> Reply:
    if not seen.results:
        return delegate("C")
    is_told = any(said.startswith("[report]") for said in seen.users)
    if is_told and len(seen.results) == 1:
        return calls(call("send_message", subagent_id=seen.find(r"Agent (agent-\w+) is at work"), message="more"))
    return text("noted")


def _c(seen: SeenRequest) -> Reply:
    if not seen.results:
        return calls(call("report", output="a finding"), call("subagent", description="G", prompt="Do G."))
    return text("done, and G too" if has_notice(seen, "G") else "G is at work")


def _g(seen: SeenRequest) -> Reply:
    return hold(_heard, text("G is done"))


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    return site.open(answering(root=_root, C=_c, G=_g))


async def _drive(app: App) -> None:
    async with whenever(app, _heard.open, has_message("more")):
        await run_task(app, "Find something out.")


SAME_EPOCH = CrashScenario(name="same epoch", open=_open, start=_drive)
