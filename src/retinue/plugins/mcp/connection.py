"""One server: its connection, which one task owns, and what it offers. Knows no agent and no tool of ours.

A connection that is lost is made again, later each time; what the server offers stays known meanwhile, so that agents
do not see tools come and go. A call that was under way is not repeated, since nobody knows how far it got.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import anyio

from retinue.base.clock import Clock
from retinue.base.json import JSONObject
from retinue.base.scope import Undo
from retinue.errors import ToolFailure
from retinue.plugins.mcp.servers import ServerConfig
from retinue.tools.tool import ToolResult

__all__ = ["Client", "Connection", "Lost", "Offer", "OpenClient", "Resource", "reason_of"]

T = TypeVar("T")

_log = logging.getLogger("retinue")

START_TIMEOUT_S = 30.0
"""For a program to start and to say what it offers."""
_FIRST_DELAY_S, _MAX_DELAY_S = 1.0, 60.0


class Lost(Exception):
    """The connection is of no use any more, or could not be made; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A tool as its server describes it. Nothing of it is trusted."""

    name: str
    description: str
    parameters: JSONObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something that a server lets read."""

    uri: str
    name: str
    description: str
    media_type: str


class Client(Protocol):
    """An open connection. Its calls may be made from any task. All raise Lost when the connection is gone."""

    @property
    def has_resources(self) -> bool:
        """The server lets read resources."""
        ...

    async def tools(self) -> list[Offer]:
        """What it offers now."""
        ...

    async def resources(self) -> list[Resource]:
        """What can be read now."""
        ...

    async def call(self, name: str, arguments: JSONObject) -> ToolResult:
        """What the server's tool answers. Cancelling tells the server."""
        ...

    async def read(self, uri: str) -> ToolResult:
        """The resource."""
        ...

    async def wait_changed(self) -> None:
        """The server says that its tools have changed. Raises: Lost when the connection ends."""
        ...


OpenClient = Callable[[str, ServerConfig, "Path | None"], AbstractAsyncContextManager[Client]]
"""Opens a connection to the named server, for a project folder. Entering raises Lost."""


class Connection:
    """One server, until it is closed."""

    def __init__(
        self, name: str, server: ServerConfig, open_client: OpenClient, *, cwd: Path | None, clock: Clock
    ) -> None:
        self.name = name
        self.server = server
        self.started = anyio.Event()
        """The first attempt has come to its end, whichever it was."""
        self.offers: tuple[Offer, ...] = ()
        """What the server offered last."""
        self.has_resources = False
        self._open_client = open_client
        self._cwd = cwd
        self._clock = clock
        self._client: Client | None = None
        self._reason = "it has not started yet"
        self._lost = anyio.Event()
        self._scope = anyio.CancelScope()
        self._ended: anyio.Event | None = None
        """Set when `run` is over; None while it has not begun."""
        self._changed: tuple[Callable[[], None], ...] = ()

    def on_change(self, listener: Callable[[], None]) -> Undo:
        """`listener` is called whenever `offers` may have changed."""
        self._changed = (*self._changed, listener)

        def undo() -> None:
            self._changed = tuple(x for x in self._changed if x is not listener)

        return Undo(undo)

    async def run(self) -> None:
        """Connects, and connects again, until it is closed or cancelled. The task that runs it owns the connection."""
        self._ended = anyio.Event()
        try:
            with self._scope:
                await self._keep()
        finally:
            self._ended.set()

    async def aclose(self) -> None:
        """The connection is closed and nothing is left of it. Shielded, bounded by what the server takes to end."""
        self._scope.cancel()
        if self._ended is not None:
            with anyio.CancelScope(shield=True):
                await self._ended.wait()

    async def _keep(self) -> None:
        delay_s = _FIRST_DELAY_S
        while True:
            try:
                await self._live()
                delay_s = _FIRST_DELAY_S
            except Exception as error:  # the server or its library fails in a way of its own
                self._reason = reason_of(error)
            finally:
                self._client = None
            self.started.set()
            _log.warning("MCP server %s is away (%s); next attempt in %.0f s", self.name, self._reason, delay_s)
            await self._clock.sleep(delay_s)
            delay_s = min(delay_s * 2, _MAX_DELAY_S)

    async def _live(self) -> None:
        self._lost = anyio.Event()
        with anyio.move_on_after(START_TIMEOUT_S) as starting:
            async with self._open_client(self.name, self.server, self._cwd) as client:
                await self._list(client)
                self._client = client
                starting.deadline = float("inf")
                self.started.set()
                async with anyio.create_task_group() as group:
                    group.start_soon(self._follow, client)
                    await self._lost.wait()
                    group.cancel_scope.cancel()
                return
        if starting.cancelled_caught:
            raise Lost(f"it did not say what it offers within {START_TIMEOUT_S:g} s")

    async def _follow(self, client: Client) -> None:
        try:
            while True:
                await client.wait_changed()
                await self._list(client)
        except Lost as error:
            self.lose(str(error))

    async def _list(self, client: Client) -> None:
        self.has_resources = client.has_resources
        self.offers = tuple(await client.tools())
        for listener in self._changed:
            listener()

    def lose(self, reason: str) -> None:
        """The connection is given up, and made again."""
        self._reason = reason
        self._client = None
        self._lost.set()

    async def call(self, name: str, arguments: JSONObject) -> ToolResult:
        """What the server's tool `name` answers. Raises: ToolFailure if the server is away, dies or takes too long."""
        return await self._ask(f"{name} of {self.name}", lambda client: client.call(name, arguments))

    async def read(self, uri: str) -> ToolResult:
        """The resource `uri`. Raises: as `call`."""
        return await self._ask(f"{uri} of {self.name}", lambda client: client.read(uri))

    async def resources(self) -> Sequence[Resource]:
        """What can be read now. Raises: as `call`."""
        return await self._ask(f"the list of {self.name}", lambda client: client.resources())

    async def _ask(self, what: str, ask: Callable[[Client], Awaitable[T]]) -> T:
        client = self._client
        if client is None:
            raise ToolFailure("SERVER_AWAY", f"the MCP server {self.name!r} is away: {self._reason}; try again later")
        try:
            with anyio.move_on_after(self.server.timeout_s):
                return await ask(client)
        except Lost as error:
            self.lose(str(error))
            raise ToolFailure(
                "SERVER_AWAY",
                f"the MCP server {self.name!r} was lost during the call, which may have had an effect: {error}",
            ) from error
        raise ToolFailure("TIMEOUT", f"{what} took longer than {self.server.timeout_s:g} s and was given up")


def reason_of(error: BaseException) -> str:
    """Why a connection failed; task groups of the library wrap what is said."""
    match error:
        case Lost():
            return str(error)
        case BaseExceptionGroup(exceptions=(BaseException() as first, *_)):
            return reason_of(first)
        case _:
            return f"{type(error).__name__}: {error}"
