"""The usual way to drive a scenario: one root, one task, told once."""

from __future__ import annotations

from retinue.base.ids import SessionId
from retinue.compose.app import App
from retinue.compose.run import Result, Run

__all__ = ["ROOT", "begin_task", "run_task"]

ROOT = SessionId("root")


async def begin_task(app: App, task: str, *, key: str = "task") -> Run:
    """The root session `root` is at work on `task`, however far an earlier process got with it."""
    if await app.host.sessions.store.summary(ROOT) is None:
        await app.agent(id=ROOT)
    return await app.resume(ROOT, task, key=key)


async def run_task(app: App, task: str) -> Result:
    """What the root session `root` makes of `task`, once nothing of it is at work any more.

    It may be called again in the next process: the task is told once.
    """
    return await (await begin_task(app, task)).result()
