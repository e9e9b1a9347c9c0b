"""Builds that break one rule of the design each, through layers that anybody may add. The exploration must notice."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec

from retinue.base.chain import Next
from retinue.compose.app import App
from retinue.session.rows import Batch, Claim, Committed, Insert, Settle
from retinue.session.store import Outcome, SessionStore
from retinue.testing.crashes import CrashScenario, Site, run_task
from retinue.testing.faults import FaultyStore
from retinue.testing.model import ScriptedModel
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, text
from retinue.tools.pipeline import ToolRequest
from retinue.tools.tool import CallKey, ToolResult
from tests.crashes.stage import answering, delegate

__all__ = ["EARLY_CLAIM", "RANDOM_REPORT_ID", "SETTLED_IN_TWO", "SOUND"]


def _root(seen: SeenRequest) -> Reply:
    return text("noted") if seen.results else delegate("C")


def _c(seen: SeenRequest) -> Reply:
    return text("C is done") if seen.results else calls(call("report", output="a finding"))


def _model() -> ScriptedModel:
    return answering(root=_root, C=_c)


async def _drive(app: App) -> None:
    await run_task(app, "Find something out.")


def _open_sound(site: Site) -> AbstractAsyncContextManager[App]:
    return site.open(_model())


SOUND = CrashScenario(name="sound", open=_open_sound, start=_drive)


class _SplittingStore(FaultyStore):
    """Stores what should be one batch as several."""

    def __init__(self, inner: SessionStore, parts: Callable[[Batch], Sequence[Batch]]) -> None:
        super().__init__(inner)
        self._parts = parts

    def begin(self, batches: Sequence[Batch], done: Callable[[Sequence[Outcome]], None]) -> None:
        """See SessionStore."""
        done([self._in_parts(batch) for batch in batches])

    def _in_parts(self, batch: Batch) -> Outcome:
        whole = Committed()
        for part in self._parts(batch):
            outcomes: list[Outcome] = []
            super().begin((part,), outcomes.extend)  # the store answers before it returns
            if not isinstance(outcomes[0], Committed):
                return outcomes[0]
            whole.orders |= outcomes[0].orders
            whole.repeated |= outcomes[0].repeated
            whole.undelivered |= outcomes[0].undelivered
        return whole


def _notice_later(batch: Batch) -> Sequence[Batch]:
    """First the end of the child, then what its parent is told of it."""
    if not any(isinstance(op, Settle) for op in batch.ops):
        return (batch,)
    told = tuple(op for op in batch.ops if isinstance(op, Insert))
    return (Batch(tuple(op for op in batch.ops if op not in told), batch.fences), Batch(told))


def _open_settled_in_two(site: Site) -> AbstractAsyncContextManager[App]:
    return site.open(_model(), store=_SplittingStore(site.store(), _notice_later))


SETTLED_IN_TWO = CrashScenario(name="settled in two", open=_open_settled_in_two, start=_drive)


def _claim_first(batch: Batch) -> Sequence[Batch]:
    """First the messages are taken, then they enter the step."""
    taken = tuple(op for op in batch.ops if isinstance(op, Claim))
    rest = tuple(op for op in batch.ops if op not in taken)
    return (Batch(taken, batch.fences), Batch(rest, batch.fences)) if taken and rest else (batch,)


def _open_early_claim(site: Site) -> AbstractAsyncContextManager[App]:
    return site.open(_model(), store=_SplittingStore(site.store(), _claim_first))


EARLY_CLAIM = CrashScenario(name="early claim", open=_open_early_claim, start=_drive)


async def _another_id_each_time(request: ToolRequest, inner: Next[ToolRequest, ToolResult]) -> ToolResult:
    """The id of a report is made from the key of its call, so that a random key makes a random id."""
    if request.context.name != "report":
        return await inner(request)
    key = CallKey(session_id=request.context.key.session_id, seq=secrets.randbelow(1 << 40), index=0)
    context = msgspec.structs.replace(request.context, key=key)
    return await inner(msgspec.structs.replace(request, context=context))


@asynccontextmanager
async def _open_random_report_id(site: Site) -> AsyncGenerator[App]:
    async with site.open(_model()) as app:
        with app.host.chains.tool_call.wrap(_another_id_each_time):
            yield app


RANDOM_REPORT_ID = CrashScenario(name="random report id", open=_open_random_report_id, start=_drive)
