"""The official SDK behind our own protocol. Imported when a server is first needed, since it takes more than a second.

Whatever the SDK raises about a connection becomes `Lost`; what a server says about one call stays a result.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx2
import mcp_types as wire
from mcp import Client as SDKClient
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from retinue.base.diagnostics import Diagnostics, diagnostics
from retinue.base.json import JSONObject, encode
from retinue.errors import ToolFailure
from retinue.model.content import InputBlock, Text
from retinue.model.images import image_of
from retinue.plugins.mcp.connection import Lost, Offer, Resource, reason_of
from retinue.plugins.mcp.listing import with_usable_tools
from retinue.plugins.mcp.program import program_streams
from retinue.plugins.mcp.servers import ServerConfig
from retinue.plugins.shell.environment import command_environment
from retinue.plugins.shell.running_groups import RunningGroups
from retinue.tools.secrets import ByteMask, Secrets
from retinue.tools.tool import ToolResult

__all__ = ["open_client"]

T = TypeVar("T")

_MAX_PAGES = 50
_HTTP_S, _HTTP_READ_S = 30.0, 300.0
_CLOSED = "Connection closed"
"""How the SDK says so, of a connection that it found closed."""
_BROKEN = (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)


_sdk_log = logging.getLogger("mcp")


class _Signals:
    """What happens on a connection while nobody asks."""

    def __init__(self) -> None:
        self.ended = False
        self._event = anyio.Event()

    def ring(self, *, ended: bool = False) -> None:
        """Whoever waits looks again."""
        self.ended = self.ended or ended
        self._event.set()

    async def wait(self) -> None:
        """The next ring."""
        await self._event.wait()
        self._event = anyio.Event()


class _Watched:
    """A transport's stream of messages that rings when it ends, which the SDK tells only those who wait for a reply.

    Listings come without the tools for which the SDK would refuse all others.
    """

    def __init__(self, name: str, stream: Any, signals: _Signals) -> None:
        self._name = name
        self._stream = stream
        self._signals = signals

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stream.__aexit__(*error)

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            message = await self._stream.receive()
        except anyio.EndOfStream:
            self._signals.ring(ended=True)
            raise StopAsyncIteration from None
        return with_usable_tools(message, self._name) if isinstance(message, SessionMessage) else message


class _SDK:
    """An open connection; see `Client`."""

    def __init__(self, client: SDKClient, signals: _Signals, last_words: Callable[[], str]) -> None:
        self._client = client
        self._signals = signals
        self._last_words = last_words

    @property
    def has_resources(self) -> bool:
        """See Client."""
        return self._client.server_capabilities.resources is not None

    async def tools(self) -> list[Offer]:
        """See Client."""
        if self._client.server_capabilities.tools is None:
            return []
        return [
            Offer(name=tool.name, description=tool.description or tool.title or "", parameters=tool.input_schema)
            for page in await self._pages(partial(self._client.list_tools, cache_mode="refresh"))
            for tool in page.tools
        ]

    async def resources(self) -> list[Resource]:
        """See Client."""
        return [
            Resource(uri=str(one.uri), name=one.name, description=one.description or "", media_type=one.mime_type or "")
            for page in await self._pages(partial(self._client.list_resources, cache_mode="refresh"))
            for one in page.resources
        ]

    async def call(self, name: str, arguments: JSONObject) -> ToolResult:
        """See Client."""
        result = await self._asked(lambda: self._client.call_tool(name, arguments))
        blocks = [block for item in result.content for block in _block(item)]
        if not blocks and result.structured_content is not None:
            blocks = [Text(encode(result.structured_content).decode())]
        blocks = blocks or [Text("(no output)")]
        if result.is_error:
            return ToolResult(content=(Text("Error: the server says:"), *blocks), is_error=True, code="SERVER_ERROR")
        return ToolResult(content=tuple(blocks), value=result.structured_content)

    async def read(self, uri: str) -> ToolResult:
        """See Client."""
        result = await self._asked(lambda: self._client.read_resource(uri, cache_mode="refresh"))
        blocks = [block for item in result.contents for block in _content(item)]
        return ToolResult(content=tuple(blocks) or (Text("(empty)"),))

    async def wait_changed(self) -> None:
        """See Client."""
        await self._signals.wait()
        if self._signals.ended:
            raise Lost(f"the connection ended{self._said()}")

    async def _pages(self, ask: Callable[..., Awaitable[T]]) -> list[T]:
        """All pages of a listing, but not more than a server that never ends may make of it."""
        pages: list[T] = []
        cursor: str | None = None
        while not pages or (cursor is not None and len(pages) < _MAX_PAGES):
            pages.append(page := await self._asked(partial(ask, cursor=cursor)))
            cursor = getattr(page, "next_cursor", None)
        return pages

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            return await ask()
        except MCPError as error:
            if self._is_end(error):
                raise Lost(f"the connection ended{self._said()}") from error
            raise ToolFailure("SERVER_ERROR", f"the server refused: {error.message}") from error
        except ValidationError as error:
            raise ToolFailure(
                "SERVER_ERROR", f"the server answered with what the protocol does not allow: {error.errors()[0]['msg']}"
            ) from error
        except _BROKEN as error:
            raise Lost(f"{type(error).__name__}: {error}{self._said()}") from error
        except RuntimeError as error:  # how the SDK says that a result breaks the tool's own output schema
            raise ToolFailure("SERVER_ERROR", f"the server broke its word: {error}") from error

    def _is_end(self, error: MCPError) -> bool:
        """The connection has ended. Servers use the SDK's code for that, -32000, for failures of their own."""
        return error.code == wire.CONNECTION_CLOSED and (self._signals.ended or error.message == _CLOSED)

    def _said(self) -> str:
        words = self._last_words()
        return f"; it said: {words}" if words else ""


@asynccontextmanager
async def open_client(
    name: str, server: ServerConfig, folder: Path | None, *, groups: RunningGroups | None
) -> AsyncGenerator[_SDK]:
    """A connection to the server; a program is in `groups` while it runs. Raises: Lost if there is none to be had."""
    if not _sdk_log.hasHandlers():  # else what it cannot read becomes tracebacks on stderr, one each
        _sdk_log.addHandler(logging.NullHandler())
    signals = _Signals()
    said: Diagnostics | None = None
    refused: list[str] = []

    def last_words() -> str:
        return said.last_words if said is not None else "".join(refused)

    async def notified(message: Any) -> None:
        if isinstance(getattr(message, "root", message), wire.ToolListChangedNotification):
            signals.ring()

    async with AsyncExitStack() as stack:
        try:
            if server.command is not None:
                said = await stack.enter_async_context(diagnostics(ByteMask(Secrets(server.env.values()))))
            transport = _transport(server, folder, said, refused, groups)
            client = SDKClient(
                _watched(name, transport, signals),
                message_handler=notified,
                client_info=wire.Implementation(name="retinue", version=version("retinue")),
                cache=None,
            )
            await stack.enter_async_context(client)
        except (MCPError, RuntimeError, ValueError, ExceptionGroup, *_BROKEN) as error:
            if isinstance(error, FileNotFoundError) and error.filename == server.command:
                raise Lost(f"there is no program {server.command!r}; install it, or correct the command") from error
            words = last_words()
            said_so = f"; it said: {words}" if words else ""
            raise Lost(f"{name} cannot be reached: {reason_of(error)}{said_so}") from error
        yield _SDK(client, signals, last_words)


@asynccontextmanager
async def _watched(name: str, transport: Any, signals: _Signals) -> AsyncGenerator[Any]:
    async with transport as (reading, writing):
        yield _Watched(name, reading, signals), writing


def _transport(
    server: ServerConfig,
    folder: Path | None,
    said: Diagnostics | None,
    refused: list[str],
    groups: RunningGroups | None,
) -> Any:
    if server.command is None:
        assert server.url is not None
        return _http(server.url, server.headers, refused)
    assert said is not None
    return program_streams(
        (server.command, *server.args),
        cwd=(folder or Path()) / (server.cwd or ""),
        env={**command_environment(os.environ), **server.env},
        said=said.file,
        groups=groups,
    )


@asynccontextmanager
async def _http(url: str, headers: dict[str, str], refused: list[str]) -> AsyncGenerator[Any]:
    """`refused` holds the status of the last request if that was a failure, of which the SDK does not tell."""

    async def note(response: httpx2.Response) -> None:
        if response.request.method == "POST":
            refused[:] = [f"HTTP {response.status_code} {response.reason_phrase}"] if response.is_error else []

    timeout = httpx2.Timeout(_HTTP_S, read=_HTTP_READ_S)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [note]}) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):
        yield streams


def _block(item: Any) -> list[InputBlock]:
    match item:
        case wire.TextContent():
            return [Text(item.text)]
        case wire.ImageContent() if image := image_of(item.data):
            return [image]
        case wire.EmbeddedResource():
            return _content(item.resource)
        case wire.ResourceLink():
            return [Text(f"[resource {item.uri}: {item.name}; mcp_read reads it]")]
        case _:
            return [Text(f"[{getattr(item, 'type', 'content')} left out: it cannot be shown]")]


def _content(item: Any) -> list[InputBlock]:
    match item:
        case wire.TextResourceContents():
            return [Text(item.text)]
        case wire.BlobResourceContents() if image := image_of(item.blob):
            return [image]
        case _:
            return [Text(f"[{getattr(item, 'mime_type', None) or 'binary'} resource left out: it cannot be shown]")]
