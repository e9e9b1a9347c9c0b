"""A scripted host with delegation: permissions, the delegation tools and reports, as the stock composition has them."""

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.host.host import Host
from retinue.model.content import Text
from retinue.plugins import permissions, report, subagent
from retinue.session.events import Event
from retinue.session.store import SessionStore
from retinue.subagent.continuation import CONTINUATIONS, Continuations
from retinue.subagent.provider import PROVIDERS, Providers, RunRequest
from retinue.testing.host import scripted_host
from retinue.testing.model import ScriptedModel
from retinue.tools.tool import Tool

__all__ = ["FORK", "STOCK", "children", "continuations", "delegating", "log", "providers", "quiet", "request"]

FORK = subagent.InstanceConfig(provider="fork", tool_name="subagent_fork")
STOCK = subagent.SubagentConfig(background_mode="continuable", instances=(FORK,))
"""The stock line-up: `subagent` is spawn and continuable, `subagent_fork` is fork and one-shot."""


@asynccontextmanager
async def delegating(
    model: ScriptedModel,
    store: SessionStore,
    config: subagent.SubagentConfig = STOCK,
    *,
    tools: Collection[Tool] = (),
    at_rest: bool = True,
) -> AsyncGenerator[Host]:
    """A host where agents delegate. Left normally, it waits until everything below every root is quiet."""
    async with (
        scripted_host(model, store=store, tools=tools, at_rest=at_rest) as host,
        permissions.plugin(host, permissions.PermissionsConfig()),
        subagent.plugin(host, config),
        report.plugin(host, report.ReportConfig()),
    ):
        yield host
        if at_rest:
            for agent in host.agents.roots():
                await quiet(host, agent)
        await host.suspend()


async def quiet(host: Host, agent: Agent) -> None:
    """The agent and everything below it has come to rest."""
    await continuations(host).wait_quiet(agent)


def continuations(host: Host) -> Continuations:
    return host.require(CONTINUATIONS, needed_by="a test")


def providers(host: Host) -> Providers:
    return host.require(PROVIDERS, needed_by="a test")


def request(parent: Agent, prompt: str = "P", **more: object) -> RunRequest:
    """A delegation that no call asked for."""
    fields = {"label": prompt, **more}
    return RunRequest(parent=parent, prompt=(Text(prompt),), **fields)  # type: ignore[arg-type]


async def children(host: Host, parent: SessionId) -> list[SessionId]:
    """Ids of the stored children, oldest first."""
    await host.sessions.writer.committed()
    return [summary.header.id for summary in await host.sessions.store.children(parent)]


async def log(host: Host, id: SessionId) -> list[Event]:
    """The stored log."""
    await host.sessions.writer.committed()
    return list((await host.sessions.store.read(id)).events)
