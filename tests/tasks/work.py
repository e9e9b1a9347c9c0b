"""Producers that a test controls, and a host with the tasks plugin."""

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from retinue.agent.agent import Agent
from retinue.base.clock import Clock
from retinue.base.ids import SessionId
from retinue.host.host import Host
from retinue.plugins.tasks import TasksConfig, plugin
from retinue.session.events import Event, TaskEnded, TaskStarted
from retinue.session.rows import StoredRow
from retinue.session.store import SessionStore
from retinue.tasks.notices import PLUGIN
from retinue.tasks.record import Hooks, Killed, TaskOutcome, TasksChanged, TaskSettled, TaskSnapshot
from retinue.tasks.runtime import TASKS, Tasks
from retinue.testing.host import scripted_host
from retinue.testing.model import ScriptedModel
from retinue.tools.tool import Tool

__all__ = ["Ends", "Work", "begin", "drained", "notices", "task_lines", "tasks_host"]


class Work:
    """One producer. It ends when the test says so, or (unless `obeys` is false) when it is cancelled."""

    def __init__(self, *, obeys: bool = True, streams: bool = False) -> None:
        self.starts = 0
        self.reasons: list[str | None] = []
        self.cancel_error: Exception | None = None
        self.start_error: Exception | None = None
        self.done_error: BaseException | None = None
        self.new_output = ""
        self._obeys = obeys
        self._streams = streams
        self._outcome: TaskOutcome | None = None
        self._ended = anyio.Event()
        self.has_left = False
        """Its coroutine is over, however it ended."""

    def start(self) -> Hooks:
        self.starts += 1
        if self.start_error is not None:
            raise self.start_error
        return Hooks(cancel=self._cancel, done=self._done, read_output=self._read if self._streams else None)

    def _cancel(self, reason: str | None) -> None:
        self.reasons.append(reason)
        if self.cancel_error is not None:
            raise self.cancel_error
        if self._obeys:
            self.end(Killed())

    async def _done(self) -> TaskOutcome:
        try:
            await self._ended.wait()
            if self.done_error is not None:
                raise self.done_error
            assert self._outcome is not None
            return self._outcome
        finally:
            self.has_left = True

    def _read(self) -> str:
        text, self.new_output = self.new_output, ""
        return text

    def end(self, outcome: TaskOutcome) -> None:
        self._outcome = self._outcome or outcome
        self._ended.set()

    def break_off(self, error: BaseException) -> None:
        self.done_error = error
        self._ended.set()


class Ends:
    """What the bus says about tasks, and waiting for it."""

    def __init__(self, host: Host) -> None:
        self.settled: list[TaskSnapshot] = []
        self.changes: list[Agent | None] = []
        self._news = anyio.Event()
        host.bus.on(TaskSettled, self._settled)
        host.bus.on(TasksChanged, lambda event: self.changes.append(event.owner))

    def _settled(self, event: TaskSettled) -> None:
        self.settled.append(event.task)
        self._news.set()
        self._news = anyio.Event()

    async def wait(self, count: int = 1) -> TaskSnapshot:
        """The `count`-th end since the beginning."""
        while len(self.settled) < count:
            await self._news.wait()
        return self.settled[count - 1]


def begin(
    tasks: Tasks,
    work: Work,
    owner: Agent | None,
    *,
    kind: str = "bash",
    label: str = "run it",
    limit: int | None = None,
) -> TaskSnapshot:
    return tasks.start(kind=kind, label=label, owner=owner, starter=work.start, output_limit=limit)


@asynccontextmanager
async def tasks_host(
    model: ScriptedModel | None = None,
    *,
    store: SessionStore | None = None,
    clock: Clock | None = None,
    tools: Collection[Tool] = (),
    at_rest: bool = True,
    errors_logged: bool = False,
    **options: Any,
) -> AsyncGenerator[tuple[Host, Tasks]]:
    async with (
        scripted_host(
            model or ScriptedModel(),
            store=store,
            clock=clock,
            tools=tools,
            at_rest=at_rest,
            errors_logged=errors_logged,
        ) as host,
        plugin(host, TasksConfig(**options)),
    ):
        yield host, host.require(TASKS, needed_by="the test")


async def notices(host: Host, id: SessionId) -> list[StoredRow]:
    """Rows of task notices in the mailbox of that session, whatever became of them."""
    await host.sessions.writer.committed()
    rows = await host.sessions.store.read_rows(id)
    return [row for row in rows if row.delivery.message.source.plugin == PLUGIN]


def task_lines(events: list[Event]) -> list[str]:
    lines: list[str] = []
    for event in events:
        match event.data:
            case TaskStarted(task_id=id):
                lines.append(f"{id} started")
            case TaskEnded(task_id=id, status=status, detail=detail):
                lines.append(f"{id} {status}" + (f": {detail}" if detail else ""))
            case _:
                pass
    return lines


async def drained() -> None:
    """Whatever could run without anybody's help has run. Bounded turns of the loop, no time."""
    for _ in range(30):
        await anyio.lowlevel.checkpoint()
