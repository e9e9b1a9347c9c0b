"""The real assembly on a SQLite store in a temporary folder, with only the model and the clock replaced."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

import retinue
from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.compose.app import App
from retinue.compose.config import Overrides, load_config
from retinue.model.content import Text, UserMessage, text_of
from retinue.session.events import ActivationEnd, Event
from retinue.session.rows import StoredRow
from retinue.session.store import SessionStore
from retinue.subagent.continuation import CONTINUATIONS, Continuations
from retinue.subagent.lifecycle import SubagentEnded, SubagentStarted
from retinue.subagent.provider import RunRequest
from retinue.subagent.resident import Accepted
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.host import audit
from retinue.testing.model import ScriptedModel
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, optional, text
from retinue.tools.function import tool
from retinue.tools.tool import Tool

CONTINUABLE = ("plugins.subagent.background_mode=continuable", "plugins.report={}")

E = TypeVar("E")


@asynccontextmanager
async def stock(
    model: ScriptedModel,
    folder: Path,
    *settings: str,
    at_rest: bool = True,
    clock: FakeClock | None = None,
    store: SessionStore | None = None,
    tools: Sequence[Tool] = (),
) -> AsyncGenerator[App]:
    """The stock composition plus `settings`. Left normally, it waits until all is quiet, then audits every log."""
    overrides = Overrides(model="scripted:model-1", home=str(folder / "home"), settings=settings)
    config = load_config(overrides, cwd=folder, environ={})
    clock = clock or FakeClock()
    async with retinue.open(
        config=config, client=model, cwd=folder, clock=clock, environ={}, store=store, tools=tools
    ) as app:
        yield app
        if at_rest:
            for agent in app.host.agents.roots():
                await continuations(app).wait_quiet(agent)
            await app.host.sessions.writer.committed()
            await audit(app.host.sessions.store)
    if at_rest:
        model.check()


def listener(model: ScriptedModel, key: str = "R") -> None:
    """The agent answers whatever reaches it, if anything does."""
    model.script(key, *[optional(text("noted"))] * 60)


def continuations(app: App) -> Continuations:
    """The continuable children of the app."""
    return app.host.require(CONTINUATIONS, needed_by="a test")


async def start(app: App, parent: Agent, label: str = "C", prompt: str = "P", **more: Any) -> SessionId:
    """A continuable child that a host started for `parent`; its id."""
    accepted: Accepted = await continuations(app).start(
        "spawn", RunRequest(parent=parent, prompt=(Text(prompt),), label=label, **more)
    )
    return accepted.child_id


async def quiet(app: App, agent: Agent) -> None:
    """The agent and everything below it has come to rest."""
    await continuations(app).wait_quiet(agent)


async def settled(app: App, id: SessionId) -> None:
    """The child has settled, durably."""
    await continuations(app).wait_settled(id)
    await app.host.sessions.writer.committed()


def live(app: App, id: SessionId) -> Agent:
    """The resident child."""
    agent = continuations(app).resident(id)
    assert agent is not None
    return agent


async def ticks(count: int = 60) -> None:
    """The event loop goes round, so that whatever could happen without the test happens."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


async def children(app: App, parent: SessionId) -> list[SessionId]:
    """Ids of the stored children, oldest first."""
    return [summary.header.id for summary in await app.host.sessions.store.children(parent)]


async def log(app: App, id: SessionId) -> list[Event]:
    """The stored log."""
    await app.host.sessions.writer.committed()
    return (await app.host.sessions.store.read(id)).events


async def rows(app: App, id: SessionId) -> list[StoredRow]:
    """Every row ever sent to the session."""
    await app.host.sessions.writer.committed()
    return await app.host.sessions.store.read_rows(id)


async def notices(app: App, parent: SessionId) -> list[str]:
    """The texts of all settlements in the parent's mailbox, read or not, in order."""
    return [
        text_of(row.delivery.message.content)
        for row in await rows(app, parent)
        if row.delivery.message.source.kind == "subagent-settled"
    ]


async def endings(app: App, child: SessionId) -> list[str]:
    """How the activations of the child ended."""
    return [event.data.outcome for event in await log(app, child) if isinstance(event.data, ActivationEnd)]


def types(events: list[Event]) -> list[str]:
    """The outline of a log, without what every request repeats."""
    return [event.type for event in events if event.type not in ("request/header", "request/context")]


def said_to(request: SeenRequest) -> list[str]:
    """The texts of the user-role messages of a request, in order, without what the runtime says about itself."""
    users = [message for message in request.messages if isinstance(message, UserMessage)]
    return [text_of(message.content) for message in users if message.source.plugin != "runtime-context"]


class Lifecycle:
    """The starts and ends of children that the host published, in order."""

    def __init__(self, app: App) -> None:
        self.seen: list[tuple[str, SessionId]] = []
        self.runs: list[tuple[str, str]] = []
        self.outcomes: list[str] = []
        app.host.bus.on(SubagentStarted, lambda event: self._add("start", event.id, event.run_id))
        app.host.bus.on(SubagentEnded, self._ended)

    def _ended(self, event: SubagentEnded) -> None:
        self._add("end", event.id, event.run_id)
        self.outcomes.append(event.outcome)

    def _add(self, what: str, id: SessionId, run: str) -> None:
        self.seen.append((what, id))
        self.runs.append((what, run))


async def left_nothing(app: App, agent: Agent, lifecycle: Lifecycle) -> None:
    """No child, no row, no event is left of a start that was rejected."""
    assert app.host.agents.list() in ((), (agent,))
    assert await children(app, agent.id) == []
    assert await notices(app, agent.id) == []
    assert lifecycle.seen == []


async def chain(
    app: App, agent: Agent, labels: str, model: ScriptedModel, gate: Gate, **later: Reply
) -> list[SessionId]:
    """One child below the other, all of them held in their first turn; `later` are replies after that, by label."""
    ids: list[SessionId] = []
    parent = agent
    for at, label in enumerate(labels, 1):
        rest = [later[label]] if label in later else []
        model.script(label, text(f"{label} so far").hold_after(gate), *rest)
        ids.append(await start(app, parent, label))
        await gate.wait_reached(at)
        parent = live(app, ids[-1])
    return ids


@tool(safe=True)
async def noop() -> str:
    """Do nothing."""
    return "done"
