"""The disk fails at any moment of a tree's work: nothing that is not stored leaves, and all of it goes on afterwards.

Real SQLite on a real file, with a disk below it that fails on purpose.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import apsw
import pytest

from retinue.agent.agent import Agent
from retinue.base.ids import MessageId, SessionId
from retinue.errors import StoreFailure
from retinue.host.host import Host
from retinue.model.content import AssistantMessage
from retinue.session.events import ActivationEnd, ToolReturned, UserMessage
from retinue.session.store import SessionRecord
from retinue.store.sqlite import SqliteStore
from retinue.testing.clock import FakeClock
from retinue.testing.host import resume_agent, start_agent
from retinue.testing.model import ScriptedModel, prompt
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, text
from retinue.tools.function import tool
from retinue.tools.tool import Tool, ToolContext
from tests.scenarios.small import check_tree, of, small_host
from tests.scenarios.stock import ticks
from tests.support.disk import Disk, Operation, faulty_disk

ROOT = SessionId("root")
TASK = MessageId("task")

UNKNOWN = "TOOL_OUTCOME_UNKNOWN"

PATIENCE_S = 20.0
"""After so long a story hangs."""

KINDS: dict[str, tuple[Operation, str, type[apsw.Error], str, int | None]] = {
    "I/O error on write": ("write", "-wal", apsw.IOError, "check the disk", None),
    "disk full": ("write", "-wal", apsw.FullError, "free space", None),
    "room for small batches alone": ("write", "-wal", apsw.FullError, "free space", 1),
    "I/O error on read": ("read", "", apsw.IOError, "check the disk", None),
    "one I/O error on read": ("read", "", apsw.IOError, "check the disk", 1),
}


@pytest.fixture
def disk() -> Generator[Disk]:
    with faulty_disk() as disk:
        yield disk


def endings_of(record: SessionRecord) -> list[str]:
    """How its activations ended."""
    return [event.data.outcome for event in record.events if isinstance(event.data, ActivationEnd)]


class Story:
    """A tree at work in one home: R starts C, which reports, starts G and does something outside; both settle. R waits
    for W, a child of one run."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "home.db"
        self.acts = 0
        """Effects outside."""
        self.premature: list[str] = []
        """What left although it was not stored."""

    def stored(self, id: SessionId, type_name: str) -> int:
        """How many events of a type the session has, as another process sees it on a sound disk."""
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY, vfs="unix")
        try:
            rows = connection.execute(
                "SELECT count(*) FROM event JOIN session ON key = session WHERE id = ? AND type = ?", (id, type_name)
            ).fetchall()
        finally:
            connection.close()
        return cast("int", rows[0][0])

    def asked(self, seen: SeenRequest) -> None:
        """A request has left: its step has to be stored."""
        step = 1 + sum(isinstance(message, AssistantMessage) for message in seen.messages)
        if self.stored(seen.session_id, "step/start") < step:
            self.premature.append(f"request {seen.number} of {seen.who}, before its step was stored")

    def root(self, seen: SeenRequest) -> Reply:
        self.asked(seen)
        if seen.results:
            return text("ok")
        waited = call("subagent", description="W", prompt="wait", run_in_background=False)
        return calls(call("subagent", description="C", prompt="do"), waited)

    def child(self, seen: SeenRequest) -> Reply:
        self.asked(seen)
        if not seen.results:
            return calls(call("report", output="a finding"), call("subagent", description="G", prompt="below"))
        return calls(call("act")) if len(seen.results) == 2 else text("C done")

    def grandchild(self, seen: SeenRequest) -> Reply:
        self.asked(seen)
        return text("G done")

    def waited(self, seen: SeenRequest) -> Reply:
        self.asked(seen)
        return text("W done")

    def model(self) -> ScriptedModel:
        made = ScriptedModel()
        made.script(ROOT, *[self.root] * 50, every=True)
        made.script("C", *[self.child] * 50, every=True)
        made.script("G", *[self.grandchild] * 50, every=True)
        made.script("W", *[self.waited] * 50, every=True)
        made.script(prompt("."), every=True)
        return made

    def act(self) -> Tool:
        @tool
        async def act(ctx: ToolContext) -> str:
            """Do something outside."""
            self.acts += 1
            if self.stored(ctx.key.session_id, "tool/start") < self.acts:
                self.premature.append("a body, before its start was stored")
            return "done"

        return act

    @asynccontextmanager
    async def process(self) -> AsyncGenerator[Host]:
        """A process that works on the home, and ends."""
        clock = FakeClock()
        store = SqliteStore.open(self.path, clock)
        store._connection.execute("PRAGMA cache_size = 1")  # so that it has to read
        async with small_host(self.model(), store, clock) as host:
            with host.tools.add(self.act()):
                yield host

    async def begin(self, host: Host) -> None:
        """The task is given, and done or cut off by an error. Raises: what the disk did to whoever gave it."""
        agent = await start_agent(host, id=ROOT)
        await agent.send("go", id=TASK)
        await self.rest(host, agent)

    async def go_on(self, host: Host) -> None:
        """What `retinue resume` does, or `retinue run` again if the session was never stored."""
        if await host.sessions.store.summary(ROOT) is None:
            await self.begin(host)
            return
        agent = await resume_agent(host, ROOT)
        await of(host).recover(agent)
        await agent.send("go", id=TASK)
        await self.rest(host, agent)

    async def rest(self, host: Host, agent: Agent) -> None:
        await of(host).wait_quiet(agent)
        await host.sessions.writer.committed()
        for other in (agent, *host.agents.list()):
            if other.failure is not None:
                raise other.failure

    async def check(self) -> None:
        """All of the work was done, each part was told once, and nothing left before it was stored."""
        assert self.premature == []
        store = SqliteStore.open(self.path, FakeClock())
        records = await check_tree(store, ROOT)
        await store.aclose()
        by_parent: dict[SessionId | None, list[SessionRecord]] = {}
        for record in records:
            by_parent.setdefault(record.header.parent_session, []).append(record)
        (top,) = by_parent[None]
        (c,) = (record for record in by_parent[ROOT] if endings_of(record))
        (g,) = by_parent[c.header.id]
        assert (set(endings_of(c)), endings_of(g)) == ({"completed"}, ["completed"])
        for record in (top, c):
            results = [event.data for event in record.events if isinstance(event.data, ToolReturned)]
            assert [result.error for result in results if result.error and result.error.code != UNKNOWN] == []
        told = Counter(event.data.source.kind for event in top.events if isinstance(event.data, UserMessage))
        assert told == {"user": 1, "subagent-report": 1, "subagent-settled": len(endings_of(c))}


async def length(folder: Path, disk: Disk) -> Counter[tuple[Operation, str]]:
    """What the whole story asks of a sound disk, from the moment at which it begins."""
    story = Story(folder)
    with anyio.fail_after(PATIENCE_S):
        async with story.process() as host:
            before = disk.counts.copy()
            await story.begin(host)
            asked = disk.counts - before
    await story.check()
    return asked


async def troubled(folder: Path, disk: Disk, kind: str, after: int, *, restarts: bool) -> bool:
    """The story with trouble from one moment on, and on a sound disk again; whether the trouble was met."""
    operation, files, error, advice, times = KINDS[kind]
    story = Story(folder)
    errors: list[str] = []
    with anyio.fail_after(PATIENCE_S):
        async with story.process() as host:
            disk.fail(operation, files, after, error, times=times)
            met = disk.failed
            try:
                await story.begin(host)
            except StoreFailure as failure:
                errors.append(str(failure))
            await ticks(200)  # what goes on beside that comes to its end as well
            was_met = disk.failed > met
            if not restarts:
                disk.mend()
                await story.go_on(host)
        disk.mend()
        if restarts:
            async with story.process() as host:
                await story.go_on(host)
    await story.check()
    assert all(advice in error for error in errors), errors
    return was_met


@pytest.mark.parametrize("restarts", [False, True], ids=["in the same process", "in the next process"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_tree_in_trouble_goes_on_when_the_trouble_is_over(
    tmp_path: Path, disk: Disk, kind: str, restarts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "retinue")
    await explore(tmp_path, disk, kind, restarts, points=8)


@pytest.mark.exploration
@pytest.mark.timeout(900)
@pytest.mark.parametrize("restarts", [False, True], ids=["in the same process", "in the next process"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_tree_in_trouble_at_any_moment_goes_on_when_the_trouble_is_over(
    tmp_path: Path, disk: Disk, kind: str, restarts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "retinue")
    await explore(tmp_path, disk, kind, restarts, points=400)


async def explore(base: Path, disk: Disk, kind: str, restarts: bool, *, points: int) -> None:
    operation, files, *_ = KINDS[kind]
    count = (await length(folder(base, "sound"), disk))[operation, files]
    met = 0
    for after in range(0, count, max(1, count // points)):
        try:
            met += await troubled(folder(base, str(after)), disk, kind, after, restarts=restarts)
        except BaseException as error:
            error.add_note(f"{kind} from operation {after} of {count} on")
            raise
    assert met > 0


def folder(base: Path, name: str) -> Path:
    (base / name).mkdir()
    return base / name
