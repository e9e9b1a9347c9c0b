"""What of a tree is at work besides its root: children and tasks in the background."""

from __future__ import annotations

import anyio

from retinue.agent.agent import Agent
from retinue.agent.signals import AgentDisposed, StatusChanged
from retinue.host.host import Host
from retinue.subagent.continuation import CONTINUATIONS
from retinue.tasks.runtime import TASKS

__all__ = ["Background"]

STOP_S = 30.0
"""How long children and tasks that are stopped may take; tools bound their own cleanup below this."""


class Background:
    """The rest of one root's tree, as this process sees it."""

    def __init__(self, host: Host, root: Agent) -> None:
        self._host = host
        self._root = root
        self._continuations = host.find(CONTINUATIONS)
        self._tasks = host.find(TASKS)

    def ids(self) -> tuple[str, ...]:
        """Live agents below the root, parents before children, and tasks of the root that have not ended."""
        tasks = self._tasks.list(self._root.id) if self._tasks is not None else ()
        own = [task.id for task in tasks if task.status in ("running", "stopping")]
        return (*(agent.id for agent in self._agents()), *own)

    def _agents(self) -> list[Agent]:
        """Every live agent of the tree but its root: one that owes nothing is disposed at once."""
        root = self._root
        return [agent for agent in self._host.agents.list() if agent is not root and agent.session.root == root.id]

    async def wait_quiet(self) -> None:
        """Nothing is at work, the root included, also not because of what the others said at their end."""
        if self._continuations is not None:
            await self._continuations.wait_quiet(self._root)
            return
        changed = anyio.Event()

        def change(_: object) -> None:
            changed.set()

        with self._host.bus.on(AgentDisposed, change), self._host.bus.on(StatusChanged, change):
            while self._root.status == "running" or self._agents():
                await changed.wait()
                changed = anyio.Event()

    async def suspend(self) -> None:
        """Nothing runs in this process any more, and everything is left open in its log. See `Host.suspend`."""
        await self._host.suspend()

    async def stop(self) -> None:
        """Children and tasks have ended and said so, or had `STOP_S` for it."""
        with anyio.move_on_after(STOP_S):
            if self._tasks is not None:
                for task in self._tasks.list(self._root.id):
                    if task.status == "running":
                        self._tasks.kill(task.id, self._root.id, "the run is over")
            if self._continuations is not None:
                await self._continuations.drain_below(self._root)
            await self.wait_quiet()
