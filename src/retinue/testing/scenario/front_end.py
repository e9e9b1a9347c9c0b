"""The front end of a scenario: who talks to the root, and what a person would have seen.

Another front end, such as an editor's protocol, is one more class with these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeAlias

from anyio.abc import TaskGroup

from retinue.agent.agent import Agent
from retinue.compose.app import App
from retinue.compose.run import Run
from retinue.errors import NotFound
from retinue.subagent.continuation import CONTINUATIONS
from retinue.testing.scenario.witness import ROOT_ID

__all__ = ["FRONT_ENDS", "FrontEnd", "Headless", "Mode"]

Mode: TypeAlias = Literal["follow-up", "steer", "inject"]


class FrontEnd(Protocol):
    """What the steps of a scenario ask of a front end. It outlives a restart."""

    transcript: list[str]
    """Lines of text."""

    async def connect(self, app: App, group: TaskGroup) -> None:
        """The root is there: a new one, or after a restart the stored one, at work on what it owes.

        `group` owns tasks of the front end, and is cancelled before the process ends.
        """
        ...

    async def send(self, text: str, mode: Mode) -> None:
        """The message is durable. Raises: what sending raises."""
        ...

    def cancel(self) -> bool:
        """The root's turn ends as soon as it can; False if none runs."""
        ...

    async def disconnect(self) -> None:
        """The front end has gone, and the root's agent with it. The next message resumes the session."""
        ...

    async def rest(self) -> None:
        """Nothing is at work any more, and the transcript says what came of it."""
        ...


class Headless:
    """As `retinue run` and `retinue resume` do: a message, and the answer when everything has come to rest."""

    def __init__(self) -> None:
        self.transcript: list[str] = []
        self._app: App | None = None
        self._run: Run | None = None

    async def connect(self, app: App, group: TaskGroup) -> None:
        """See FrontEnd."""
        if self._app is None:
            await app.agent(id=ROOT_ID)
        else:
            self.transcript.append("(another process goes on)")
            self._run = await app.resume(ROOT_ID)
        self._app = app

    @property
    def _there(self) -> App:
        assert self._app is not None
        return self._app

    @property
    def _agent(self) -> Agent | None:
        agent = self._there.host.agents.get(ROOT_ID)
        return None if agent is None or agent.is_closing else agent

    async def send(self, text: str, mode: Mode) -> None:
        """See FrontEnd. What is steered or injected belongs to the work that goes on, if any does."""
        self.transcript.append(f"> {text}")
        agent = self._agent
        match mode:
            case "follow-up" if agent is None:
                self._run = await self._there.resume(ROOT_ID, text)
            case "follow-up" if agent is not None and self._run is None:
                self._run = await self._there.run(text, agent=agent)
            case _ if agent is None:
                raise NotFound("nothing can be added to the work of a root that is not there")
            case "follow-up":
                await agent.follow_up(text).wait()
            case "steer":
                await agent.steer(text).wait()
            case "inject":
                await agent.inject(text).wait()

    def cancel(self) -> bool:
        """See FrontEnd: as SIGINT does, the queue stays."""
        agent = self._agent
        if agent is None or agent.status != "running":
            return False
        if self._run is not None:
            self._run.cancel()
        else:
            agent.cancel(keep_mailbox=True)
        return True

    async def disconnect(self) -> None:
        """See FrontEnd."""
        agent, self._run = self._agent, None
        if agent is None:
            raise NotFound("the front end is not connected to a root")
        await self._there.close(agent)
        self.transcript.append("(disconnected)")

    async def rest(self) -> None:
        """See FrontEnd."""
        run, self._run = self._run, None
        if run is not None:
            result = await run.result()
            self.transcript.extend([result.output] if result.output else [])
            if result.error is not None:
                self.transcript.append(f"retinue: {result.error.code}: {result.error.message}")
        host = self._there.host
        continuations = host.find(CONTINUATIONS)
        for agent in host.agents.roots():
            await (agent.wait_idle() if continuations is None else continuations.wait_quiet(agent))
        await host.sessions.writer.committed()


def _editor() -> FrontEnd:
    from retinue.testing.scenario.editor import Editor

    return Editor()


FRONT_ENDS: Mapping[str, Callable[[], FrontEnd]] = {"headless": Headless, "acp": _editor}
"""By the name that a scenario has for them."""
