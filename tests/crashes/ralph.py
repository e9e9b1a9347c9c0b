"""Three rounds, one after the other; what each is asked shows that the one before handed on."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from retinue.compose.app import App
from retinue.testing.crashes import CrashScenario, Site
from retinue.testing.crashes.drive import run_task
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, text
from tests.crashes.stage import Answer, answering

__all__ = ["RALPH"]


def _root(seen: SeenRequest) -> Reply:
    return text(seen.results[-1].splitlines()[2]) if seen.results else calls(call("ralph", objective="Count."))


def _round(status: str, hand_off: str, before: str) -> Answer:
    def answer(seen: SeenRequest) -> Reply:
        assert f"{before}\n\nLook at how things stand" in seen.users[0], seen.users[0]
        return calls(call("structured_output", status=status, hand_off=hand_off))

    return answer


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    answers = {
        "root": _root,
        "round 1": _round("continue", "one", "Nobody has worked on it before you."),
        "round 2": _round("continue", "one two", "The round before you handed on:\n\none"),
        "round 3": _round("complete", "one two three", "The round before you handed on:\n\none two"),
    }
    return site.open(answering(**answers), settings=("plugins.ralph={}",))


async def _drive(app: App) -> None:
    result = await run_task(app, "Count.")
    assert result.output == "one two three", result


RALPH = CrashScenario(name="ralph", open=_open, start=_drive)
