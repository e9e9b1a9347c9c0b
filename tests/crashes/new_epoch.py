"""A parent has more for a child that had settled, twice: each time the child is resumed, and settles once more."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from retinue.compose.app import App
from retinue.testing.crashes import CrashScenario, Site, run_task
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, text
from tests.crashes.stage import answering, delegate

__all__ = ["NEW_EPOCH"]


def _root(seen: SeenRequest) -> Reply:
    if not seen.results:
        return delegate("C")
    settled = sum(said.startswith("[notice]") for said in seen.users)
    if settled == len(seen.results) < 3:
        id = seen.find(r"\[notice\] Agent (agent-\w+)")
        return calls(call("send_message", subagent_id=id, message=f"round {settled + 1}"))
    return text("noted")


def _c(seen: SeenRequest) -> Reply:
    said = seen.users[-1]
    if not seen.new or "Reported" not in seen.new[-1]:
        return calls(call("report", output=f"about {said}"))
    return text(f"done with {said}")


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    return site.open(answering(root=_root, C=_c))


async def _drive(app: App) -> None:
    await run_task(app, "Ask in three rounds.")


NEW_EPOCH = CrashScenario(name="new epoch", open=_open, start=_drive)
