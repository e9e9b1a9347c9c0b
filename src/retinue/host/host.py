"""A host owns everything that agents share in one process: store, registries, chains, seams, and their tasks.

Plugins fill it. It knows no feature: a feature is a plugin that adds to a registry, wraps a chain or observes.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar, cast

import anyio
from anyio.abc import TaskGroup, TaskStatus

from retinue.agent.environment import AgentOptions, Chains, Environment, Finish, Start
from retinue.agent.registry import Agents
from retinue.base.bus import Bus
from retinue.base.clock import Clock
from retinue.base.scope import Undo
from retinue.base.side_tasks import side_tasks
from retinue.errors import ConfigError, DuplicateName, MissingSeam
from retinue.host.context import RuntimeContext
from retinue.model.client import ModelClient
from retinue.model.retry import RetryPolicy
from retinue.prompt.sections import PromptRegistry
from retinue.session.store import SessionStore
from retinue.session.table import Sessions
from retinue.session.writer import Durability
from retinue.tools.registry import ToolRegistry
from retinue.tools.secrets import Secrets
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["Host", "HostOptions", "Plugin", "Seam", "open_host"]

_SCOPE_WAIT_S = 5.0
"""How long closing what belongs to one agent may take when its host goes."""

_log = logging.getLogger("retinue")
T = TypeVar("T")
C = TypeVar("C", contravariant=True)


class Seam(Generic[T]):
    """A typed name under which one plugin offers something to others."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Plugin(Protocol[C]):
    """An optional feature. Entering the context installs it, leaving undoes everything it did."""

    def __call__(self, host: Host, config: C, /) -> AbstractAsyncContextManager[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """What a host is made with; all of it has a sensible default."""

    durability: Durability = "process"
    retry: RetryPolicy = RetryPolicy()
    options: AgentOptions = AgentOptions()
    """For agents that say nothing else."""
    cwd: Path | None = None
    """Absolute working folder of agents that name none; the process's if None."""
    home: Path | None = None
    """Folder for what is kept outside the store, such as long outputs; None = nothing is kept."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Environment variables that plugins may look at."""
    width: int = 10
    tool_order: tuple[str, ...] | None = None
    on_interrupt: Literal["continue", "settle"] = "continue"
    """What becomes of children that the end of a process caught in a turn, once their tree is resumed."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values, such as keys, that no tool result may show and no file may keep. Plugins add more to `Host.secrets`."""


class Host:
    """One per process and store. Made by `open_host`."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        start: Start,
        options: HostOptions,
    ) -> None:
        self.options = options
        self.clock = clock
        self.start = start
        self.secrets = Secrets(options.secrets)
        self.sessions = Sessions(store, clock, options.durability)
        self.tools = ToolRegistry()
        self.prompt = PromptRegistry()
        self.bus = Bus()
        self.chains = Chains()
        self.context = RuntimeContext(self.chains)
        self._clients: dict[str, ModelClient] = {}
        self._finders: tuple[Callable[[str], ModelClient | None], ...] = ()
        self._seams: dict[str, object] = {}
        self._finishers: tuple[Finish, ...] = ()
        self.environment = Environment(
            sessions=self.sessions,
            start=start,
            client=self.client,
            random=random.random,
            tools=self.tools,
            prompt=self.prompt,
            bus=self.bus,
            chains=self.chains,
            retry=options.retry,
            options=options.options,
            finish=self._finish,
            width=options.width,
            tool_order=options.tool_order,
            cwd=options.cwd or Path.cwd(),
        )
        self.agents = Agents(self.environment)
        self.drivers: _Drivers | None = None

    async def suspend(self) -> None:
        """Nothing runs any more and nothing is taken: every driver stopped where it was, turns stay open in their logs.

        Call it before what agents use is taken away. Idempotent, shielded, bounded by what tools take to stop.
        """
        self.agents.suspend()
        if self.drivers is not None:
            with anyio.CancelScope(shield=True):
                self.drivers.group.cancel_scope.cancel()
                await self.drivers.ended.wait()
            for agent in reversed(self.agents.list()):
                with anyio.move_on_after(_SCOPE_WAIT_S, shield=True):
                    try:
                        await agent.scope.aclose()
                    except Exception:
                        _log.exception("closing what belongs to agent %s failed", agent.id)

    # Models

    def add_client(self, client: ModelClient) -> Undo:
        """The model provider is known under its name. Raises: DuplicateName."""
        name = client.provider
        if name in self._clients:
            raise DuplicateName(f"model provider {name!r} is registered twice")
        self._clients[name] = client
        return Undo(lambda: self._clients.pop(name, None))

    def find_clients(self, find: Callable[[str], ModelClient | None]) -> Undo:
        """`find` is asked once for each model provider that is not known; it keeps and closes what it makes."""
        self._finders = (*self._finders, find)

        def undo() -> None:
            self._finders = tuple(x for x in self._finders if x is not find)

        return Undo(undo)

    def _found(self, name: str) -> ModelClient | None:
        client = next((client for find in self._finders if (client := find(name)) is not None), None)
        if client is not None:
            self._clients[name] = client
        return client

    def client(self, name: str) -> ModelClient:
        """The client of a model provider. Raises: ConfigError with the names that exist."""
        client = self._clients.get(name) or self._found(name)
        if client is None:
            known = ", ".join(sorted(self._clients)) or "none"
            raise ConfigError(f"there is no model provider {name!r} here; configured: {known}")
        return client

    # Seams

    def provide(self, seam: Seam[T], value: T) -> Undo:
        """`value` is what the seam gives from now on. Raises: DuplicateName."""
        if seam.name in self._seams:
            raise DuplicateName(f"the seam {seam.name!r} is provided twice; remove one of the two plugins")
        self._seams[seam.name] = value
        return Undo(lambda: self._seams.pop(seam.name, None))

    def require(self, seam: Seam[T], *, needed_by: str) -> T:
        """What the seam gives. Raises: MissingSeam, which names both, if no plugin provides it."""
        if seam.name not in self._seams:
            raise MissingSeam(f"plugin {needed_by!r} needs {seam.name!r}, which no loaded plugin provides")
        return cast(T, self._seams[seam.name])

    def find(self, seam: Seam[T]) -> T | None:
        """What the seam gives, or None."""
        return cast("T | None", self._seams.get(seam.name))

    # Results

    def add_finisher(self, finish: Finish) -> Undo:
        """`finish` has a word on every later tool result, after those added before."""
        self._finishers = (*self._finishers, finish)

        def undo() -> None:
            self._finishers = tuple(x for x in self._finishers if x is not finish)

        return Undo(undo)

    async def _finish(self, tool: Tool | None, context: ToolContext, result: ToolResult) -> ToolResult:
        for finish in self._finishers:
            result = await finish(tool, context, result)
        return result


@dataclass(slots=True)
class _Drivers:
    """The tasks of a host, in a group that can be stopped while the host's own code goes on."""

    group: TaskGroup
    ended: anyio.Event
    on_end: Callable[[], None] = lambda: None
    """Called in the same instant in which nothing can be started any more."""


async def _drivers(*, task_status: TaskStatus[_Drivers]) -> None:
    drivers = _Drivers(anyio.create_task_group(), anyio.Event())
    try:
        async with drivers.group:
            task_status.started(drivers)
            await anyio.sleep_forever()
    finally:
        drivers.on_end()
        drivers.ended.set()


@asynccontextmanager
async def open_host(store: SessionStore, clock: Clock, options: HostOptions) -> AsyncGenerator[Host]:
    """A running host. It owns `store` from here on and closes it.

    Leaving stops every driver where it is and writes what was submitted: turns stay open in their logs and go on after
    the next resume, as after a crash. Raises on leaving: what the block raised, as it is; else what a driver's own
    failure raised, in a group, if one was not contained.
    """
    host: Host | None = None
    try:
        async with side_tasks() as group:
            drivers = await group.start(_drivers)
            host = Host(store, clock, drivers.group.start_soon, options)
            host.drivers = drivers
            drivers.on_end = host.agents.close_admission
            drivers.group.start_soon(host.sessions.keep_leases)
            drivers.group.start_soon(host.sessions.keep_looking)
            try:
                yield host
            finally:
                await host.suspend()
    finally:
        with anyio.CancelScope(shield=True):
            if host is not None:
                await host.sessions.aclose()
            await store.aclose()
