"""Messages that must be refused, and what that leaves behind: nothing. Scenario C22."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.compose.app import App
from retinue.errors import (
    CorruptSession,
    Draining,
    NotResumable,
    RetinueError,
    StoreFailure,
    Unauthorized,
)
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, hold, text
from tests.scenarios.stock import (
    CONTINUABLE,
    children,
    continuations,
    listener,
    live,
    log,
    quiet,
    rows,
    settled,
    start,
    stock,
)
from tests.scenarios.stores import WatchedStore, home_file


async def refused(app: App, parent: Agent, id: SessionId, error: type[RetinueError]) -> str:
    with pytest.raises(error) as caught:
        await continuations(app).send(parent, id, "psst")
    return str(caught.value)


async def test_c22_messages_that_must_be_refused_resume_nothing_and_leave_the_log_as_it_is(tmp_path: Path) -> None:
    model, gate, clock = ScriptedModel(), Gate(), FakeClock()
    listener(model)
    model.script("C", text("one"), text("kept"))
    model.script("S", hold(gate, text("sibling")), text("heard"))
    model.script("G", text("grandchild"))
    model.script("O", text("once"))
    root = model.script("F")
    store = WatchedStore(tmp_path, clock)
    async with stock(model, tmp_path, *CONTINUABLE, store=store, clock=clock) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await settled(app, child)
        sibling = await start(app, agent, "S")
        grandchild = await start(app, live(app, sibling), "G")
        await settled(app, grandchild)
        other = await app.agent(label="F")
        root.add(calls(call("subagent", description="O", prompt="P", run_in_background=False)), text("done"))
        await other.follow_up("go").wait()
        await other.wait_idle()
        (once,) = await children(app, other.id)
        await quiet_but(app, agent)
        before = await raw(app, child, tmp_path)
        live_before = app.host.agents.list()
        double = Agent(app.host.environment, agent.session, agent.options)
        agent.session.driver = agent
        assert "only its direct parent" in await refused(app, live(app, sibling), child, Unauthorized)
        assert "only its direct parent" in await refused(app, agent, grandchild, Unauthorized)
        await refused(app, double, child, Unauthorized)
        await refused(app, agent, SessionId("nobody"), NotResumable)
        assert "do not retry" in await refused(app, other, once, NotResumable)
        store.spoilt[child] = CorruptSession("its log is torn")
        assert "torn" in await refused(app, agent, child, NotResumable)
        store.spoilt[child] = StoreFailure("the disk does not answer")
        assert "does not answer" in await refused(app, agent, child, NotResumable)
        store.spoilt.clear()
        connection = apsw.Connection(str(home_file(tmp_path)))
        change = "UPDATE event SET data = ? WHERE type = 'subagent/descriptor' AND session = ?"
        ((key,),) = connection.execute("SELECT key FROM session WHERE id = ?", (child,))
        ((kept,),) = connection.execute(
            "SELECT data FROM event WHERE type = 'subagent/descriptor' AND session = ?", (key,)
        )
        connection.execute(change, (b'{"version": 99, "mode": "continuable", "provider": "x", "cloud": 1}', key))
        assert "do not retry" in await refused(app, agent, child, NotResumable)
        connection.execute(change, (kept, key))
        connection.close()
        assert await raw(app, child, tmp_path) == before
        assert app.host.agents.list() == live_before
        await continuations(app).send(agent, child, "welcome")
        gate.open()


async def quiet_but(app: App, agent: Agent) -> None:
    await agent.wait_idle()
    await app.host.sessions.writer.committed()


async def raw(app: App, id: SessionId, folder: Path) -> list[tuple[object, ...]]:
    """The bytes of a log and the rows of a mailbox."""
    await app.host.sessions.writer.committed()
    connection = apsw.Connection(str(home_file(folder)), flags=apsw.SQLITE_OPEN_READONLY)
    ((key,),) = connection.execute("SELECT key FROM session WHERE id = ?", (id,))
    events = list(connection.execute("SELECT seq, time, type, data FROM event WHERE session = ? ORDER BY seq", (key,)))
    messages = list(connection.execute("SELECT * FROM message WHERE session = ?", (key,)))
    connection.close()
    return [*events, *messages]


async def test_a_refused_message_reaches_the_model_as_an_error_with_its_code(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.script("R", calls(call("send_message", subagent_id="nobody", message="hello")), text("oh"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        result = next(event.data for event in await log(app, agent.id) if event.type == "tool/result")
        assert result.error.code == "NOT_RESUMABLE"  # type: ignore[union-attr]
        assert "list_agents" in model.requests("R")[-1].results[-1]


async def test_a_message_is_refused_while_the_tree_is_drained(tmp_path: Path) -> None:
    model = ScriptedModel()
    listener(model)
    model.script("C", text("one"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:
        agent = await app.agent(label="R")
        child = await start(app, agent)
        await quiet(app, agent)
        await continuations(app).drain_below(agent)
        await refused(app, agent, child, Draining)


async def test_a_drain_between_the_check_of_a_message_and_its_batch_fails_the_call_and_not_the_turn(
    tmp_path: Path,
) -> None:
    model, gate = ScriptedModel(), Gate()
    model.script("C", text("one"))
    root = model.script("R", calls(call("subagent", description="C", prompt="P")), text("a"), text("b"))
    async with stock(model, tmp_path, *CONTINUABLE) as app:

        async def slow(tool, context, result):  # type: ignore[no-untyped-def]
            if tool is not None and tool.name == "send_message":
                await gate.wait()
            return result

        app.host.add_finisher(slow)
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await quiet(app, agent)
        (child,) = await children(app, agent.id)
        root.add(calls(call("send_message", subagent_id=child, message="hi")), text("I see"))
        await agent.follow_up("tell it").wait()
        await gate.wait_reached()
        await continuations(app).drain_below(agent)
        gate.open()
        await agent.wait_idle()
        assert "being drained" in model.requests("R")[-1].results[-1]
        assert [row.delivery.message.source.kind for row in await rows(app, child)] == ["user"]
