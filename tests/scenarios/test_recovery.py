"""What comes back after a process that ended at a chosen commit. Source: architecture, "Load and recovery"."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from retinue.base.ids import SessionId
from retinue.compose.app import App
from retinue.session.events import UserMessage
from retinue.session.rows import Append, Batch
from retinue.testing.clock import FakeClock
from retinue.testing.faults import FaultyStore, appends
from retinue.testing.gate import Gate
from retinue.testing.host import audit
from retinue.testing.model import ScriptedModel
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, call, calls, hold, text
from tests.scenarios.stock import (
    CONTINUABLE,
    children,
    endings,
    log,
    notices,
    quiet,
    rows,
    said_to,
    settled,
    start,
    stock,
    ticks,
)
from tests.support.stores import OpenStore, store_opener

ROOT = SessionId("root")
When = Callable[[Batch], bool]


def after(when: When) -> When:
    """The batch that follows the first one of that kind."""
    seen = False

    def matches(batch: Batch) -> bool:
        nonlocal seen
        was_seen, seen = seen, seen or when(batch)
        return was_seen

    return matches


def of_session(id: str, type: str) -> When:
    """A batch that appends an event of this type to the log of that session."""

    def matches(batch: Batch) -> bool:
        found = [op for op in batch.ops if isinstance(op, Append) and op.session_id == id]
        return any(event.type == type for op in found for event in op.events)

    return matches


async def death_of(store: FaultyStore) -> None:
    """The commit at which the process dies has come."""
    with anyio.fail_after(10):
        while not store.is_dead:
            await ticks(1)


async def life_until(
    when: When, open_store: OpenStore, model: ScriptedModel, folder: Path, *, starts: Sequence[str] = ()
) -> None:
    """One process: a root with children that a host started gets its task, and the process dies at that commit."""
    clock = FakeClock()
    store = FaultyStore(open_store(clock))
    async with stock(model, folder, *CONTINUABLE, store=store, clock=clock, at_rest=False) as app:
        agent = await app.agent(label="R", id=ROOT)
        for label in starts:
            await settled(app, await start(app, agent, label))
        await agent.wait_idle()
        store.die(when)
        await agent.follow_up("go").wait()
        await death_of(store)
        await ticks()


@asynccontextmanager
async def resumed(open_store: OpenStore, model: ScriptedModel, folder: Path) -> AsyncGenerator[App]:
    """The next process, which resumed the root and has come to rest; every log is in order."""
    clock = FakeClock()
    async with stock(model, folder, *CONTINUABLE, store=open_store(clock), clock=clock, at_rest=False) as app:
        run = await app.resume(ROOT)
        await run.result()
        yield app
        await audit(app.host.sessions.store)


async def test_nothing_is_loaded_and_nothing_runs_until_somebody_resumes_the_root(tmp_path: Path) -> None:
    model, never = ScriptedModel(), Gate()
    model.script("C", hold(never, text("never")))
    async with stock(model, tmp_path, *CONTINUABLE, at_rest=False) as app:
        await start(app, await app.agent(label="R", id=ROOT))
        await never.wait_reached()
    async with stock(ScriptedModel(), tmp_path, *CONTINUABLE, at_rest=False) as app:
        other = await app.agent(label="another")
        await ticks()
        assert app.host.agents.list() == (other,)
        assert await app.host.sessions.store.owing(ROOT) != []


@pytest.mark.parametrize("died", ["before", "after"])
async def test_a_start_is_executed_again_and_finds_the_child_that_it_had_made(tmp_path: Path, died: str) -> None:
    def root(seen: SeenRequest) -> Reply:
        return text("ok") if seen.results else calls(call("subagent", description="C", prompt="do"))

    model, open_store = _patient(root, C=lambda _: text("C done")), store_opener("memory", tmp_path)
    is_result = of_session(ROOT, "tool/result")
    await life_until(is_result if died == "before" else after(is_result), open_store, model, tmp_path)
    async with resumed(open_store, model, tmp_path) as app:
        (child,) = await children(app, ROOT)
        assert await endings(app, child) == ["completed"]
        assert len(await notices(app, ROOT)) == 1
        assert [row.delivery.message.source.kind for row in await rows(app, child)] == ["user"]


@pytest.mark.parametrize("died", ["before", "after"])
async def test_a_report_is_executed_again_and_arrives_once(tmp_path: Path, died: str) -> None:
    def child(seen: SeenRequest) -> Reply:
        return text("C done") if seen.results else calls(call("report", output="a finding"))

    def root(seen: SeenRequest) -> Reply:
        return text("ok") if seen.results else calls(call("subagent", description="C", prompt="do"))

    model, open_store = _patient(root, C=child), store_opener("memory", tmp_path)

    def is_result(batch: Batch) -> bool:
        return appends("tool/result")(batch) and not of_session(ROOT, "tool/result")(batch)

    await life_until(is_result if died == "before" else after(is_result), open_store, model, tmp_path)
    async with resumed(open_store, model, tmp_path) as app:
        kinds = [row.delivery.message.source.kind for row in await rows(app, ROOT)]
        assert sorted(kinds) == ["subagent-report", "subagent-settled", "user"]
        read = [e.data.source.kind for e in await log(app, ROOT) if isinstance(e.data, UserMessage)]
        assert read.index("subagent-report") < read.index("subagent-settled")


@pytest.mark.parametrize("died", ["before", "after"])
async def test_a_follow_up_is_executed_again_and_arrives_once(tmp_path: Path, died: str) -> None:
    def root(seen: SeenRequest) -> Reply:
        if "go" not in seen.users or seen.results:
            return text("ok")
        return calls(call("send_message", subagent_id=seen.find(r'from="([^"]+)"'), message="again"))

    model, open_store = _patient(root, C=lambda _: text("C done")), store_opener("memory", tmp_path)
    is_result = of_session(ROOT, "tool/result")
    await life_until(is_result if died == "before" else after(is_result), open_store, model, tmp_path, starts="C")
    async with resumed(open_store, model, tmp_path) as app:
        (child,) = await children(app, ROOT)
        assert await endings(app, child) == ["completed", "completed"]
        assert [row.delivery.message.source.kind for row in await rows(app, child)] == ["user", "coordinator"]
        assert len(await notices(app, ROOT)) == 2


async def test_a_child_that_had_said_its_last_words_settles_without_a_request(tmp_path: Path) -> None:
    model, open_store = _patient(lambda _: text("noted"), C=lambda _: text("C done")), store_opener("memory", tmp_path)
    clock = FakeClock()
    store = FaultyStore(open_store(clock))
    store.die(appends("subagent/settled"))
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock, at_rest=False) as app:
        child = await start(app, await app.agent(label="R", id=ROOT))
        await death_of(store)
    async with resumed(open_store, model, tmp_path) as app:
        assert await endings(app, child) == ["completed"]
        assert "C done" in (await notices(app, ROOT))[0]
    assert len(model.requests("C")) == 1


async def test_a_settlement_that_its_parent_never_read_waits_for_the_resume(tmp_path: Path) -> None:
    model, open_store = _patient(lambda _: text("noted"), C=lambda _: text("C done")), store_opener("memory", tmp_path)
    clock = FakeClock()
    store = FaultyStore(open_store(clock))
    store.die(of_session(ROOT, "turn/start"))
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock, at_rest=False) as app:
        child = await start(app, await app.agent(label="R", id=ROOT))
        await death_of(store)
    store = open_store(clock)
    assert [row.state for row in await store.read_rows(ROOT)] == ["pending"]
    assert await store.owing(ROOT) == [ROOT]
    async with resumed(open_store, model, tmp_path) as app:
        (notice,) = await notices(app, ROOT)
        assert said_to(model.requests(ROOT)[-1]) == [notice]
        assert await endings(app, child) == ["completed"]


async def test_a_run_whose_child_waits_for_its_own_is_not_over_after_a_crash_either(tmp_path: Path) -> None:
    def root(seen: SeenRequest) -> Reply:
        if seen.results:
            return text(f"C said: {seen.results[-1]}")
        return calls(call("subagent", description="C", prompt="do", run_in_background=False))

    def child(seen: SeenRequest) -> Reply:
        if not seen.results:
            return calls(call("subagent", description="G", prompt="below"))
        return text("G is back" if any("G done" in said for said in seen.users) else "waiting for G")

    first, never, open_store = _patient(root, C=child), Gate(), store_opener("memory", tmp_path)
    first.script("G", hold(never, text("never")))
    clock = FakeClock()
    async with stock(first, tmp_path, *CONTINUABLE, store=open_store(clock), clock=clock, at_rest=False) as app:
        agent = await app.agent(label="R", id=ROOT)
        await agent.follow_up("go").wait()
        await never.wait_reached()
        (one_shot,) = await children(app, ROOT)
        run = app.host.agents.get(one_shot)
        assert run is not None
        await run.wait_idle()
    second = _patient(root, C=child)
    second.script("G", text("G done"))
    async with stock(second, tmp_path, *CONTINUABLE, store=open_store(clock), clock=clock) as app:
        result = await (await app.resume(ROOT)).result()
        assert result.output == "C said: G is back"
        assert [line.outcome for line in result.agents] == ["completed", "completed"]
        await quiet(app, app.host.agents.list()[0])


def _patient(root: Callable[[SeenRequest], Reply], **children: Callable[[SeenRequest], Reply]) -> ScriptedModel:
    """A model that acts by what it sees, in any number of lives."""
    model = ScriptedModel()
    for key in ("R", ROOT):
        model.script(key, *[root] * 20, every=True)
    for label, answer in children.items():
        model.script(label, *[answer] * 20, every=True)
    return model
