"""The process dies before each of its commits, once and twice, and the next one comes to the same end."""

from __future__ import annotations

import logging
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from retinue.base.ids import MessageId, SessionId
from retinue.errors import RetinueError
from retinue.session.events import UserMessage
from retinue.session.invariants import SessionRecord
from retinue.testing.clock import FakeClock
from retinue.testing.faults import FaultyStore
from retinue.testing.host import resume_agent, start_agent
from retinue.testing.model import ScriptedModel, prompt
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, text
from tests.scenarios.small import check_tree, endings_of, of, small_host
from tests.support.stores import OpenStore, store_opener

pytestmark = pytest.mark.exploration

ROOT = SessionId("root")


def root(seen: SeenRequest) -> Reply:
    """Starts C, answers its notice once, and is content."""
    if not seen.results:
        return calls(call("subagent", description="C", prompt="do"))
    is_told = any(said.startswith("[notice]") for said in seen.users)
    if is_told and len(seen.results) == 1:
        return calls(call("send_message", subagent_id=seen.find(r"Agent (agent-\w+) is at work"), message="again"))
    return text("ok")


def child(seen: SeenRequest) -> Reply:
    """Reports, starts G, and says how far it is."""
    if not seen.results:
        return calls(call("report", output="a finding"), call("subagent", description="G", prompt="below"))
    return text("again done" if "again" in seen.users else "C done")


def model() -> ScriptedModel:
    made = ScriptedModel()
    made.script(ROOT, *[root] * 50, every=True)
    made.script("C", *[child] * 50, every=True)
    made.script("G", *[text("G done")] * 5, every=True)
    made.script(prompt("."), every=True)
    return made


async def live(open_store: OpenStore, dies_at: int | None) -> int:
    """One process, which dies before its `dies_at`-th commit or comes to rest; the answer is how many it made."""
    clock = FakeClock()
    store = FaultyStore(open_store(clock))
    if dies_at is not None:
        store.die(dies_at)
    async with small_host(model(), store, clock) as host:
        try:
            if await store.summary(ROOT) is None:
                agent = await start_agent(host, id=ROOT)
            else:
                agent = await resume_agent(host, ROOT)
                await of(host).recover(agent)
            await agent.send("go", id=MessageId("task"))
            while not store.is_dead:
                with anyio.move_on_after(0.001):
                    await of(host).wait_quiet(agent)
                    break
        except RetinueError:
            assert store.is_dead
        for _ in range(100 if store.is_dead else 0):
            await anyio.lowlevel.checkpoint()
    return len(store.batches)


async def check(open_store: OpenStore) -> None:
    clock = FakeClock()
    store = open_store(clock)
    records = await check_tree(store, ROOT)
    await store.aclose()
    by_parent: dict[SessionId | None, list[SessionRecord]] = {}
    for record in records:
        by_parent.setdefault(record.header.parent_session, []).append(record)
    (top,), (c,) = by_parent[None], by_parent[ROOT]
    (g,) = by_parent[c.header.id]
    assert endings_of(c) == ["completed", "completed"]
    assert endings_of(g) == ["completed"]
    read = [event.data.source.kind for event in top.events if isinstance(event.data, UserMessage)]
    assert sorted(read) == ["subagent-report", "subagent-settled", "subagent-settled", "user"]
    assert read.index("subagent-report") < read.index("subagent-settled")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_process_that_dies_before_any_commit_is_followed_by_one_that_comes_to_the_same_end(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "retinue")
    count = await live(store_opener("memory", tmp_path), None)
    for k in range(1, count + 1, 1 if kind == "memory" else 5):
        open_store = store_opener(kind, folder(tmp_path, k))
        await live(open_store, k)
        await live(open_store, None)
        await check(open_store)


async def test_two_deaths_in_a_row_change_nothing_either(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "retinue")
    for first in range(3, 40, 5):
        for second in (1, 2, 3, 5, 8):
            open_store = store_opener("memory", tmp_path)
            await live(open_store, first)
            await live(open_store, second)
            await live(open_store, None)
            await check(open_store)


def folder(base: Path, k: int) -> Path:
    path = base / str(k)
    path.mkdir()
    return path
