"""Tools of MCP servers: programs and addresses in the format that people already have (`mcpServers`).

Each server has one task that owns its connection. What a server does wrong - starting slowly, hanging, dying, flooding,
offering what cannot be used - costs its own tools and nobody else's. Servers are programs of the user: they are not
confined, they get no key that is not named for them, and with the permission `read-only` only those of their tools may
be called that the configuration calls reading.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager, nullcontext

import anyio
from anyio import to_thread
from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.host.host import Host
from retinue.plugins.mcp.connection import Connection
from retinue.plugins.mcp.resources import resource_tools
from retinue.plugins.mcp.servers import ServerConfig, read_servers, resolved, secret_values
from retinue.plugins.mcp.tools import ServerTools
from retinue.plugins.mcp.trees import TREE_SERVERS, TreeServers, client_opener
from retinue.plugins.permissions import PERMISSIONS
from retinue.plugins.shell.running_groups import RunningGroups, running_groups

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
    groups = await running_groups(host.options.home)
    brought = TreeServers(host, start_wait_s=config.start_wait_s, groups=groups)
    with host.provide(TREE_SERVERS, brought), host.agents.on_setup(brought.compose):
        try:
            async with _configured(host, config, servers, groups) if servers else nullcontext():
                yield
        finally:
            await brought.aclose()


@asynccontextmanager
async def _configured(
    host: Host, config: MCPConfig, servers: Mapping[str, ServerConfig], groups: RunningGroups | None
) -> AsyncGenerator[None]:
    """The servers of the configuration, whose tools all agents have."""
    open_client = client_opener(groups)
    permissions = host.require(PERMISSIONS, needed_by="mcp")
    connections = {
        name: Connection(name, server, open_client, cwd=host.options.cwd, clock=host.clock)
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
        for server in servers.values():
            stack.enter_context(host.secrets.add(secret_values(server)))
        readers = resource_tools(connections)

        def offer_resources() -> None:
            if any(connection.has_resources for connection in connections.values()):
                while readers:
                    stack.enter_context(host.tools.add(readers.pop()))

        for connection in connections.values():
            tools = ServerTools(host.tools.add, connection, permissions, host.secrets)
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
