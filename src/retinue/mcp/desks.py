"""Desks: the roots below which agents work for an MCP host. No model ever answers at a desk.

What children send to a desk opens turns like everywhere, and those only take it off the mailbox: rows keep it, in
order. A desk belongs to a workspace, which is a folder of a home. Since one process drives a tree, hosts that share a
workspace have one desk each. Source: decision 0014.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from retinue.agent.agent import Agent
from retinue.agent.environment import PreStep, StepInput
from retinue.base.chain import Next
from retinue.base.ids import SessionId, derived_id
from retinue.compose.app import App
from retinue.errors import AlreadyExists, SessionHeld

__all__ = ["Desks", "open_desks"]


class Desks:
    """The desks of one workspace, as one process sees them."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.folder: Path = app.cwd.resolve()
        """The folder of the workspace."""
        self._composed: set[SessionId] = set()

    async def compose(self, agent: Agent) -> None:
        """An agent that is one of the desks asks no model."""
        if agent.id in self._composed:
            agent.chains.pre_step.wrap(_take_off)

    async def ids(self) -> list[SessionId]:
        """Every desk that the workspace has had, whoever drives it."""
        found: list[SessionId] = []
        while await self._app.host.sessions.store.summary(id := self._id(len(found) + 1)) is not None:
            found.append(id)
        return found

    def _id(self, number: int) -> SessionId:
        return SessionId(derived_id("desk", str(self.folder), number))

    async def own(self) -> Agent:
        """A desk that this process drives: the first free one, or a new one. Raises: StoreFailure, CorruptSession."""
        number = 1
        while (agent := await self.drive(self._id(number))) is None:
            number += 1
        return agent

    async def take_up(self) -> None:
        """This process has a desk, and drives those that others left with work. Raises: as `own`."""
        await self.own()
        for id in await self.ids():
            if await self._app.host.sessions.store.owing(id):
                await self.drive(id)

    async def drive(self, id: SessionId) -> Agent | None:
        """The desk, driven by this process, with everybody below it who owes work; None if another process drives it.

        A desk that is not stored is made. Raises: StoreFailure, CorruptSession.
        """
        live = self._app.host.agents.get(id)
        if live is not None and not live.is_closing:
            return live
        if await self._app.host.sessions.store.ring(id) is not None:
            return None
        self._composed.add(id)
        try:
            if await self._app.host.sessions.store.summary(id) is None:
                return await self._app.agent(id=id, label="desk")
            return (await self._app.resume(id)).agent
        except (SessionHeld, AlreadyExists):
            return None


@asynccontextmanager
async def open_desks(app: App) -> AsyncGenerator[Desks]:
    """The desks of the app's folder. What was left there goes on. Raises: as `Desks.take_up`."""
    desks = Desks(app)
    with app.host.agents.on_setup(desks.compose):
        await desks.take_up()
        yield desks


async def _take_off(_: StepInput, __: Next[StepInput, PreStep]) -> PreStep:
    return ()
