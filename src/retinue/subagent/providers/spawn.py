"""The `spawn` provider: a fresh child in this process, which sees nothing but its prompt."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.agent.registry import Agents
from retinue.session.events import Event
from retinue.subagent.one_shot import WaitQuiet, Waits, start_one_shot
from retinue.subagent.provider import Capabilities, Run, RunRequest

__all__ = ["SpawnProvider"]


class SpawnProvider:
    """Children without a past."""

    name = "spawn"
    capabilities = Capabilities(output_schema=True, depth_limit=True, tool_filter=True, persona=True)

    def __init__(
        self, agents: Agents, *, wait_quiet: WaitQuiet | None = None, wait_quiet_again: WaitQuiet | None = None
    ) -> None:
        """`wait_quiet` says when a child has come to rest, `wait_quiet_again` when a resumed one has; by default, when
        it is idle.
        """
        self._agents = agents
        self._waits = Waits(wait_quiet, wait_quiet_again)

    async def start(self, request: RunRequest) -> Run:
        """See `Provider.start`."""
        return await start_one_shot(self._agents, request, self.name, waits=self._waits)

    async def prepare(self, request: RunRequest) -> Sequence[Event]:
        """A fresh child begins with nothing."""
        return ()
