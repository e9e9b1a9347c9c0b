"""A program starts a child that must answer by a schema, and finds it again under the same key."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from retinue.base.json import JSONObject
from retinue.compose.app import App
from retinue.model.content import Text
from retinue.subagent.provider import PROVIDERS, RunRequest
from retinue.testing.crashes import CrashScenario, Site
from retinue.testing.crashes.drive import ROOT
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls
from retinue.tools.tool import CallKey
from tests.crashes.stage import answering

__all__ = ["STRUCTURED"]

_KEY = CallKey(session_id=ROOT, seq=0, index=0)
_SCHEMA: JSONObject = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}


def _s(seen: SeenRequest) -> Reply:
    """It needs two attempts."""
    count = 3 if seen.results else "three"
    return calls(call("structured_output", count=count))


def _open(site: Site) -> AbstractAsyncContextManager[App]:
    return site.open(answering(S=_s))


async def _drive(app: App) -> None:
    is_new = await app.host.sessions.store.summary(ROOT) is None
    parent = await app.agent(id=ROOT) if is_new else await app.host.agents.resume(ROOT)
    request = RunRequest(parent=parent, prompt=(Text("Count."),), label="S", key=_KEY, output_schema=_SCHEMA)
    run = await app.host.require(PROVIDERS, needed_by="a scenario").start("spawn", request)
    outcome = await run.result()
    await run.dispose()
    assert (outcome.ending, outcome.structured) == ("completed", {"count": 3}), outcome


STRUCTURED = CrashScenario(name="structured", open=_open, start=_drive)
