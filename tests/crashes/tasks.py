"""Work in the background: a command, and a child that answers once. What dies with its process is told once."""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager

from retinue.compose.app import App
from retinue.testing.crashes import CrashScenario, Site, run_task
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, text
from tests.crashes.stage import answering

__all__ = ["TASKS"]

_SETTINGS = ("plugins.subagent.background_mode=one-shot",)


_BASH = call("bash", command="echo done", description="say done", run_in_background=True)


def _root(seen: SeenRequest) -> Reply:
    """It starts the command again if that never started, or nobody knows what became of it."""
    if not seen.results:
        return calls(call("subagent", description="C", prompt="Do C.", run_in_background=True), _BASH)
    is_started = any("bash-" in result for result in seen.results)
    is_over = any("task `bash-" in said for said in seen.users)
    return text("noted") if is_started or is_over else calls(_BASH)


def _c(seen: SeenRequest) -> Reply:
    return text("C is done")


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    return site.open(answering(root=_root, C=_c), settings=_SETTINGS)


async def _drive(app: App) -> None:
    await run_task(app, "Start things in the background.")


def _smooth(line: str) -> str:
    """How a task ended, and how far its child got, depends on when its process died; that it is told once does not."""
    if line.startswith("root/C"):
        return ""
    return re.sub(r"`(bash|subagent)-\d` .* has ended: .*", r"\1 has ended", line)


TASKS = CrashScenario(name="tasks", open=_open, start=_drive, smooth=_smooth)
