"""A host with delegation, reports and tasks in the world of a schedule, and pieces of scripts for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TypeAlias

from retinue.agent.agent import Agent
from retinue.agent.environment import AgentOptions
from retinue.base.ids import SessionId
from retinue.host.host import Host, HostOptions, open_host
from retinue.model.content import AssistantMessage, text_of
from retinue.plugins import permissions, report, subagent, tasks
from retinue.session.events import ToolReturned, UserMessage
from retinue.subagent.continuation import CONTINUATIONS, Continuations
from retinue.testing.host import MODEL, resume_agent, start_agent
from retinue.testing.request import SeenRequest
from retinue.testing.schedules import World
from retinue.testing.script import Call, Reply, Scripted, call, text

__all__ = ["ROOT", "Delegation", "above", "answered_once", "below", "of", "plays", "quiet", "root", "stage"]

Delegation: TypeAlias = Callable[[Host, subagent.SubagentConfig], AbstractAsyncContextManager[None]]

ROOT = SessionId("session-root")
ONE_SHOT = subagent.InstanceConfig(tool_name="one_shot", background_mode="one-shot")


@asynccontextmanager
async def stage(
    world: World,
    *,
    slots: int = 1000,
    refusals: int = 0,
    delegation: Delegation = subagent.plugin,
    asks: Sequence[str] = (),
) -> AsyncGenerator[Host]:
    """Left, it suspends: turns and activations stay open in the store. Rules ask about the tools in `asks`."""
    options = HostOptions(options=AgentOptions(provider=world.model.provider, model=MODEL))
    config = subagent.SubagentConfig(
        background_mode="continuable", instances=(ONE_SHOT,), max_concurrent=slots, max_depth=4
    )
    async with open_host(world.store(refusals=refusals), world.clock, options) as host:
        with host.add_client(world.model), host.tools.add(world.tool()):
            rules = permissions.RulesConfig(ask=tuple(asks))
            async with (
                permissions.plugin(host, permissions.PermissionsConfig(rules=rules)) if asks else nullcontext(),
                tasks.plugin(host, tasks.TasksConfig()),
                delegation(host, config),
                report.plugin(host, report.ReportConfig()),
            ):
                try:
                    yield host
                finally:
                    await host.suspend()


def of(host: Host) -> Continuations:
    """The continuable children of the host."""
    return host.require(CONTINUATIONS, needed_by="a test")


async def root(host: Host) -> Agent:
    """The root agent: the live one, or the stored one brought back with all that owes work, or a new one."""
    live = host.agents.get(ROOT)
    if live is not None and not live.is_closing:
        return live
    if await host.sessions.store.summary(ROOT) is None:
        return await start_agent(host, "R", id=ROOT)
    agent = await resume_agent(host, ROOT)
    agent.label = "R"
    await of(host).recover(agent)
    return agent


async def quiet(world: World, host: Host) -> None:
    """Everything that was to happen has happened, and all that came of it is at rest and stored."""
    while True:
        await of(host).wait_quiet(await root(host))
        if not world.is_acting:
            break
        await world.wait_acted()
    await host.sessions.writer.committed()


def plays(world: World, label: str, *replies: Scripted) -> None:
    """Every session of that label says these, one after the other, and `noted` from then on."""

    def reply(seen: SeenRequest) -> Reply:
        said = sum(isinstance(message, AssistantMessage) for message in seen.messages)
        chosen = replies[said] if said < len(replies) else text("noted")
        return chosen if isinstance(chosen, Reply) else chosen(seen)

    world.model.script(label, *[reply] * 200, every=True)


def below(label: str, *, waits: bool = False) -> Call:
    """A call that starts a child of that label, and waits for it or not."""
    return call("subagent", description=label, prompt=f"do {label}", run_in_background=not waits)


def above(host: Host, child: SessionId) -> Agent | None:
    """The live parent of a live child."""
    agent = host.agents.get(child)
    parent = agent.session.header.parent_session if agent is not None else None
    return host.agents.get(parent) if parent is not None else None


async def answered_once(world: World, *answers: str, reader: SessionId = ROOT) -> None:
    """Each of these words has come to the reader exactly once. Raises: AssertionError with the counts."""
    stored = await world.look().read(reader)
    data = [event.data for event in stored.events]
    heard = [text_of(one.content) for one in data if isinstance(one, UserMessage)]
    heard += [text_of(one.message.content) for one in data if isinstance(one, ToolReturned)]
    counts = Counter({answer: sum(answer in said for said in heard) for answer in answers})
    assert all(counts[answer] == 1 for answer in answers), dict(counts)
