"""Tools of MCP servers: programs and addresses in the format that people already have (`mcpServers`).

Each server has one task that owns its connection. What a server does wrong - starting slowly, hanging, dying, flooding,
offering what cannot be used - costs its own tools and nobody else's. Servers are programs of the user: they are not
confined, they get no key that is not named for them, and with the permission `read-only` only those of their tools may
be called that the configuration calls reading.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager

import anyio
from anyio import to_thread
from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.errors import ConfigError
from retinue.host.host import Host
from retinue.plugins.mcp.connection import Connection
from retinue.plugins.mcp.resources import resource_tools
from retinue.plugins.mcp.servers import ServerConfig, read_servers, resolved
from retinue.plugins.mcp.tools import ServerTools
from retinue.plugins.permissions import PERMISSIONS

__all__ = ["OPTIONS", "MCPConfig", "plugin"]


class MCPConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which servers there are."""

    mcp_servers: dict[str, ServerConfig] = {}
    """By name, as other programs write them."""
    file: str | None = ".mcp.json"
    """A file with `mcpServers`, in the folder; its servers come before those here. null reads none."""
    start_wait_s: float = 10.0
    """How long the first request waits for servers that are still starting; their tools come later then."""


OPTIONS = MCPConfig


@asynccontextmanager
async def plugin(host: Host, config: MCPConfig) -> AsyncGenerator[None]:
    """Servers are starting; leaving ends them. Raises: ConfigError for servers that cannot be meant, or without the
    extra `mcp`."""
    folder = host.options.cwd
    given = dict(config.mcp_servers)
    if config.file is not None and folder is not None:
        given |= await to_thread.run_sync(read_servers, folder / config.file)
    servers = {
        name: resolved(name, server, host.options.environ) for name, server in given.items() if not server.disabled
    }
    if not servers:
        yield
        return
    try:
        from retinue.plugins.mcp import client
    except ImportError as error:
        raise ConfigError("MCP servers are configured, but the extra is missing: pip install 'retinue[mcp]'") from error

    permissions = host.require(PERMISSIONS, needed_by="mcp")
    connections = {
        name: Connection(name, server, client.open_client, cwd=folder, clock=host.clock)
        for name, server in servers.items()
    }
    waited = anyio.Event()

    async def wait_for_servers() -> None:
        with anyio.move_on_after(config.start_wait_s):
            for connection in connections.values():
                await connection.started.wait()
        waited.set()

    async def before_first_request(_: Agent) -> None:
        await waited.wait()

    with ExitStack() as stack:
        readers = resource_tools(connections)

        def offer_resources() -> None:
            if any(connection.has_resources for connection in connections.values()):
                while readers:
                    stack.enter_context(host.tools.add(readers.pop()))

        for connection in connections.values():
            tools = ServerTools(host.tools, connection, permissions)
            connection.on_change(tools.update)
            connection.on_change(offer_resources)
            stack.callback(tools.clear)
        stack.enter_context(host.agents.on_setup(before_first_request))
        for connection in connections.values():
            host.start(connection.run)
        host.start(wait_for_servers)
        try:
            yield
        finally:
            for connection in connections.values():
                await connection.aclose()
