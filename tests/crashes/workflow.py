"""A script hands work to agents side by side and then to one more; some of what they do is outside."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from retinue.compose.app import App
from retinue.testing.crashes import CrashScenario, Site
from retinue.testing.crashes.drive import run_task
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, text
from tests.crashes.stage import answering

__all__ = ["WORKFLOW"]

_SCRIPT = """
both = await parallel([agent(f"Count {name}.", label=name) for name in args])
return " and ".join([*both, await agent("Close " + " ".join(both), label="Z")])
"""


def _root(seen: SeenRequest) -> Reply:
    if seen.results:
        return text(seen.results[-1].splitlines()[0])
    return calls(call("workflow", script=_SCRIPT, meta={"name": "count"}, args=["A", "B"]))


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    model = answering(root=_root, A=lambda _: text("one"), B=lambda _: text("two"), Z=lambda _: text("three"))
    return site.open(model, settings=("plugins.workflow={}", "plugins.workflow.concurrency=2"))


async def _drive(app: App) -> None:
    result = await run_task(app, "Count.")
    assert result.output == "one and two and three", result


WORKFLOW = CrashScenario(name="workflow", open=_open, start=_drive)
