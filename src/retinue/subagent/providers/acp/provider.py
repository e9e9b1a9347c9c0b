"""The provider of one external agent: its children are programs that speak the Agent Client Protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from retinue.agent.agent import Agent
from retinue.agent.environment import AgentOptions
from retinue.agent.registry import Agents
from retinue.errors import DepthExceeded, UnsupportedCapability
from retinue.session.events import Event
from retinue.subagent.one_shot import WaitQuiet, Waits, start_one_shot
from retinue.subagent.provider import Capabilities, Run, RunRequest
from retinue.subagent.providers.acp.client import PROVIDER, AcpClient
from retinue.subagent.providers.acp.external import ExternalAgent

__all__ = ["AcpProvider"]


class AcpProvider:
    """Children that work in another program; continuable where the program can take up earlier sessions."""

    def __init__(
        self,
        agents: Agents,
        client: AcpClient,
        known: ExternalAgent,
        *,
        check: Callable[[Agent], None] = lambda _: None,
        wait_quiet: WaitQuiet | None = None,
        wait_quiet_again: WaitQuiet | None = None,
    ) -> None:
        """`check` raises if that parent may not start such a child. The rest is as for `spawn`."""
        self.name = f"{PROVIDER}:{known.name}"
        self.capabilities = Capabilities(depth_limit=True, external=AgentOptions(provider=PROVIDER, model=known.name))
        self._agents = agents
        self._client = client
        self._known = known
        self._check = check
        self._waits = Waits(wait_quiet, wait_quiet_again)

    async def start(self, request: RunRequest) -> Run:
        """See `Provider.start`. Raises: what `check` raises."""
        self._admit(request)
        return await start_one_shot(self._agents, request, self.name, waits=self._waits)

    async def prepare(self, request: RunRequest) -> Sequence[Event]:
        """Nothing: the child's past is the program's.

        Raises: UnsupportedCapability if the program cannot take up sessions, ExternalAgentFailed if it cannot be
        asked, DepthExceeded, what `check` raises.
        """
        self._admit(request)
        can = await self._client.capabilities(self._known.name, request.parent.cwd)
        if not can.continues:
            raise UnsupportedCapability(
                f"agent {self._known.name!r} cannot take up earlier sessions, so it has no continuable children; "
                "use run_in_background: false, or background_mode one-shot"
            )
        return ()

    def _admit(self, request: RunRequest) -> None:
        self._check(request.parent)
        depth = self._known.depth + request.parent.depth + 1
        if request.max_depth is not None and depth > request.max_depth:
            raise DepthExceeded(
                f"a child here would have depth {depth}, counted over all programs, and the maximum is "
                f"{request.max_depth}; do the work yourself"
            )
