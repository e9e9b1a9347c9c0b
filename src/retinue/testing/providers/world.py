"""What a check is given: a host with the provider, and children that behave as they are told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.host.host import Host
from retinue.model.content import Text
from retinue.session.events import Event
from retinue.session.invariants import violations
from retinue.session.rows import StoredRow
from retinue.subagent.continuation import CONTINUATIONS, Continuations
from retinue.subagent.outcome import Ending
from retinue.subagent.provider import PROVIDERS, Provider, Providers, RunRequest
from retinue.testing.host import all_sessions, resume_agent, start_agent

__all__ = ["ANSWER", "BAD_ENDS", "Behaviour", "Check", "OpenWorld", "World", "passes"]

ANSWER = "forty-two"
"""What a child says that is told to answer."""

Behaviour: TypeAlias = Literal["answer", "truncate", "refuse", "fail", "hang"]
"""`answer` says ANSWER and completes, `truncate` runs into its token limit, `refuse` declines, `fail` breaks down, and
`hang` is at work until it is stopped."""

BAD_ENDS: tuple[tuple[Behaviour, Ending], ...] = (("truncate", "max-tokens"), ("refuse", "refusal"), ("fail", "error"))
"""How what behaves so ends."""


class World(Struct, frozen=True, kw_only=True):
    """One process: a host with the provider, whose root agents answer with some text whatever they are told."""

    host: Host
    provider: str
    """Its name."""
    prompt: Callable[[Behaviour], str]
    """What makes a child behave so."""
    wait_hanging: Callable[[int], Awaitable[None]]
    """Children have begun to hang so many times in all, since this host was opened."""

    @property
    def providers(self) -> Providers:
        """The providers of the host."""
        return self.host.require(PROVIDERS, needed_by="a check")

    @property
    def tested(self) -> Provider:
        """The provider itself."""
        found = self.providers.get(self.provider)
        assert found is not None, f"there is no provider {self.provider!r}"
        return found

    @property
    def continuations(self) -> Continuations:
        """The continuable children of the host."""
        return self.host.require(CONTINUATIONS, needed_by="a check")

    async def parent(self) -> Agent:
        """A new root."""
        return await start_agent(self.host)

    async def again(self, id: SessionId) -> Agent:
        """The root from before the host was opened, and its children that owe work, are here again."""
        await self.continuations.prepare(id)
        root = await resume_agent(self.host, id)
        await self.continuations.recover(root)
        return root

    def request(self, parent: Agent, behaviour: Behaviour, **more: object) -> RunRequest:
        """A delegation to a child that behaves so."""
        fields = {"label": behaviour, **more}
        return RunRequest(parent=parent, prompt=(Text(self.prompt(behaviour)),), **fields)  # type: ignore[arg-type]

    async def events(self, id: SessionId) -> tuple[Event, ...]:
        """The stored log."""
        await self.host.sessions.writer.committed()
        return tuple((await self.host.sessions.store.read(id)).events)

    async def rows(self, id: SessionId, kind: str) -> list[StoredRow]:
        """The stored messages to that session whose source is of that kind."""
        await self.host.sessions.writer.committed()
        rows = await self.host.sessions.store.read_rows(id)
        return [row for row in rows if row.delivery.message.source.kind == kind]

    async def children(self, parent: SessionId) -> list[SessionId]:
        """Ids of the stored children, oldest first."""
        await self.host.sessions.writer.committed()
        return [summary.header.id for summary in await self.host.sessions.store.children(parent)]


OpenWorld: TypeAlias = Callable[[], AbstractAsyncContextManager[World]]
"""Opens a host; a second time after the first has been left, on what is stored: a restart. Leaving it stops what runs
where it is, as the end of a process does."""

Check: TypeAlias = Callable[[OpenWorld], Awaitable[None]]
"""One sentence about providers. Raises: AssertionError if it does not hold."""


async def passes(check: Check, open_world: OpenWorld) -> None:
    """The check holds, and whenever a host is left no log breaks the rules of logs. Raises: AssertionError."""

    @asynccontextmanager
    async def audited() -> AsyncGenerator[World]:
        async with open_world() as world:
            yield world
            await _audit(world)

    await check(audited)


async def _audit(world: World) -> None:
    await world.host.sessions.writer.committed()
    store = world.host.sessions.store
    problems: list[str] = []
    for summary in await all_sessions(store):
        id = summary.header.id
        found = violations((await store.read(id)).events, await store.read_rows(id))
        problems.extend(f"{id}: {problem}" for problem in found)
    assert not problems, "logs break the rules:\n- " + "\n- ".join(problems)
