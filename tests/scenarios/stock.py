"""The real assembly on a SQLite store in a temporary folder, with only the model and the clock replaced."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import retinue
from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.compose.app import App
from retinue.compose.config import Overrides, load_config
from retinue.model.content import text_of
from retinue.session.events import Event
from retinue.subagent.continuation import CONTINUATIONS, Continuations
from retinue.testing.clock import FakeClock
from retinue.testing.host import audit
from retinue.testing.model import ScriptedModel
from retinue.testing.request import SeenRequest

CONTINUABLE = ("plugins.subagent.background_mode=continuable", "plugins.report={}")


@asynccontextmanager
async def stock(
    model: ScriptedModel, folder: Path, *settings: str, at_rest: bool = True, clock: FakeClock | None = None
) -> AsyncGenerator[App]:
    """The stock composition plus `settings`. Left normally, it waits until all is quiet, then audits every log."""
    overrides = Overrides(model="scripted:model-1", home=str(folder / "home"), settings=settings)
    config = load_config(overrides, cwd=folder, environ={})
    async with retinue.open(config=config, client=model, cwd=folder, clock=clock or FakeClock(), environ={}) as app:
        yield app
        if at_rest:
            for agent in app.host.agents.roots():
                await continuations(app).wait_quiet(agent)
            await app.host.sessions.writer.committed()
            await audit(app.host.sessions.store)
    if at_rest:
        model.check()


def continuations(app: App) -> Continuations:
    """The continuable children of the app."""
    return app.host.require(CONTINUATIONS, needed_by="a test")


async def quiet(app: App, agent: Agent) -> None:
    """The agent and everything below it has come to rest."""
    await continuations(app).wait_quiet(agent)


async def children(app: App, parent: SessionId) -> list[SessionId]:
    """Ids of the stored children, oldest first."""
    return [summary.header.id for summary in await app.host.sessions.store.children(parent)]


async def log(app: App, id: SessionId) -> list[Event]:
    """The stored log."""
    await app.host.sessions.writer.committed()
    return (await app.host.sessions.store.read(id)).events


def types(events: list[Event]) -> list[str]:
    """The outline of a log, without what every request repeats."""
    return [event.type for event in events if event.type not in ("request/header", "request/context")]


def said_to(request: SeenRequest) -> list[str]:
    """The texts of the user-role messages of a request, in order."""
    return [text_of(message.content) for message in request.messages if message.__class__.__name__ == "UserMessage"]
