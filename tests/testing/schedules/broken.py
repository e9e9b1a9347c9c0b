"""Delegation with a mistake in it, of the kind that only some orders of events show."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager

import anyio

from retinue.agent.agent import Agent
from retinue.agent.environment import AgentOptions
from retinue.host.host import Host
from retinue.model.content import Text
from retinue.plugins.subagent import SubagentConfig
from retinue.session.session import Session
from retinue.subagent.continuation import CONTINUATIONS, Continuations
from retinue.subagent.lifecycle import SubagentEnded
from retinue.subagent.provider import PROVIDERS, Providers, RunRequest
from retinue.subagent.providers.spawn import SpawnProvider
from retinue.subagent.recovery import Recovery
from retinue.subagent.resident import Resident
from retinue.subagent.supervisor import Supervisor
from retinue.subagent.tools.subagent import Backends, DelegationOptions, delegation_tool
from retinue.tools.function import tool
from retinue.tools.tool import Tool, ToolContext
from tests.testing.schedules.stage import Delegation

__all__ = ["Hasty", "Sleepy", "supervised_by", "waiting_too_late"]


class Hasty(Supervisor):
    """Settles on what it knew when it began: a message that arrives late is put aside."""

    async def _settle(self, resident: Resident, session: Session) -> None:
        await self._host.sessions.store.summary(resident.id)
        was_released, resident.is_released = resident.is_released, True
        try:
            await super()._settle(resident, session)
        finally:
            resident.is_released = was_released


class Sleepy(Supervisor):
    """Looks whether there is something to do, and only then begins to listen."""

    async def _until_over(self, resident: Resident) -> None:
        while not resident.is_over and not self._agents.is_suspending:
            if self._may_close(resident):
                await self._close(resident)
            else:
                await self._host.sessions.store.summary(resident.id)
                await resident.changed.wait()


def supervised_by(kind: type[Supervisor]) -> Delegation:
    """The delegation plugin, reduced to one tool, with another supervisor."""

    class Broken(Continuations):
        def __init__(self, host: Host, providers: Providers) -> None:
            super().__init__(host, providers)
            self._supervisor = kind(
                host,
                self._roster,
                self._contributions,
                live_tasks=lambda _: 0,
                is_draining=self.authority.is_draining,
                is_stopping=lambda _: False,
            )
            self._recovery = Recovery(host, self._roster, self._supervisor)

    @asynccontextmanager
    async def plugin(host: Host, _: SubagentConfig) -> AsyncGenerator[None]:
        providers = Providers(host.bus)
        broken, spawn = Broken(host, providers), SpawnProvider(host.agents)
        backends = Backends(providers=providers, continuations=broken)
        options = DelegationOptions(background="continuable", options=AgentOptions())
        with ExitStack() as stack:
            stack.enter_context(host.provide(PROVIDERS, providers))
            stack.enter_context(host.provide(CONTINUATIONS, broken))
            stack.enter_context(providers.add(spawn))
            stack.enter_context(host.tools.add(delegation_tool(backends, spawn, options)))
            yield

    return plugin


def waiting_too_late(host: Host) -> Tool:
    """A tool that starts a child, makes a note of it, and then begins to listen for its end."""

    @tool(safe=True)
    async def ask(ctx: ToolContext, label: str) -> str:
        """Ask a child."""
        assert isinstance(ctx.caller, Agent)
        request = RunRequest(parent=ctx.caller, prompt=(Text("do"),), label=label, key=ctx.key)
        child = (await host.require(CONTINUATIONS, needed_by="ask").start("spawn", request)).child_id
        note = await host.sessions.store.summary(child)
        assert note is not None
        ended = anyio.Event()
        with host.bus.on(SubagentEnded, lambda event: ended.set() if event.id == child else None):
            await ended.wait()
        return "it has ended"

    return ask
