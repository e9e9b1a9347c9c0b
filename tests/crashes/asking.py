"""Three children in the background ask whether they may work: one may, one may not, one may from now on."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from retinue.compose.app import App
from retinue.host.approvals import APPROVALS, Answer, Approvals, Question
from retinue.testing.crashes import CrashScenario, Site, run_task
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, text
from retinue.tools.function import tool
from tests.crashes.stage import answering, delegate

__all__ = ["ASKING"]


@tool
async def paint(what: str) -> str:
    """Paint something."""
    return f"painted {what}"


class _User:
    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals

    def asked(self, question: Question) -> None:
        verb = "reject" if question.label == "B" else "allow"
        self._approvals.answer(question.id, Answer(verb=verb, always=question.label == "C"))

    def withdrawn(self, question: Question) -> None:
        raise AssertionError(f"nobody stops {question.label}")


def _root(seen: SeenRequest) -> Reply:
    return text("noted") if seen.results else delegate("A", "B", "C")


def _once(seen: SeenRequest) -> Reply:
    is_over = any("painted" in result or "rejected" in result for result in seen.results)
    return text("done") if is_over else calls(call("paint", what="the fence"))


def _twice(seen: SeenRequest) -> Reply:
    painted = [result for result in seen.results if result.startswith("painted")]
    return text("done") if len(painted) >= 2 else calls(call("paint", what=f"wall {len(painted)}"))


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    model = answering(root=_root, A=_once, B=_once, C=_twice)
    return site.open(model, tools=[paint], settings=["plugins.permissions.rules.ask=['paint']"])


async def _drive(app: App) -> None:
    approvals = app.host.require(APPROVALS, needed_by="a scenario")
    with approvals.answered_by(_User(approvals)):
        await run_task(app, "Let the fence be painted.")


ASKING = CrashScenario(name="asking", open=_open, start=_drive)
