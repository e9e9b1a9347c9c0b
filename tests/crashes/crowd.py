"""Many children that settle at the same time."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from retinue.compose.app import App
from retinue.testing.crashes import CrashScenario, Site, run_task
from retinue.testing.model import prompt
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, text
from tests.crashes.stage import answering, delegate

__all__ = ["CROWD"]

_SIZE = 8


def _root(seen: SeenRequest) -> Reply:
    return text("noted") if seen.results else delegate(*(f"C{number}" for number in range(_SIZE)))


def _child(seen: SeenRequest) -> Reply:
    return text(f"{seen.label} is done")


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    model = answering(root=_root)
    model.script(prompt("^Do C"), _child, every=True)
    return site.open(model)


async def _drive(app: App) -> None:
    await run_task(app, "Start a crowd.")


CROWD = CrashScenario(name="crowd", open=_open, start=_drive)
