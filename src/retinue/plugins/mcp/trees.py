"""Servers that somebody brings for one tree: its agents alone have their tools, and they end with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.base.scope import Undo
from retinue.errors import ConfigError
from retinue.host.host import Host, Seam
from retinue.plugins.mcp.connection import Connection, OpenClient
from retinue.plugins.mcp.servers import ServerConfig, checked, secret_values
from retinue.plugins.mcp.tools import ServerTools
from retinue.plugins.permissions import PERMISSIONS
from retinue.plugins.shell.running_groups import RunningGroups

__all__ = ["TREE_SERVERS", "TreeServers", "client_opener"]


def client_opener(groups: RunningGroups | None) -> OpenClient:
    """What opens connections; programs are in `groups` while they run. Raises: ConfigError without the extra `mcp`."""
    try:
        from retinue.plugins.mcp import client
    except ImportError as error:
        raise ConfigError(
            "MCP servers are asked for, but the extra is missing; in the folder of Retinue: pip install -e '.[mcp]'"
        ) from error
    return partial(client.open_client, groups=groups)


class TreeServers:
    """The servers of all trees of one host that somebody brought some for."""

    def __init__(self, host: Host, *, start_wait_s: float, groups: RunningGroups | None) -> None:
        self._host = host
        self._groups = groups
        self._start_wait_s = start_wait_s
        self._trees: dict[SessionId, Sequence[Connection]] = {}
        self._secrets: dict[SessionId, Undo] = {}

    def check(self, servers: Mapping[str, ServerConfig]) -> None:
        """Return if such servers can be started. Raises: ConfigError that names the server, or the missing extra."""
        for name, server in servers.items():
            checked(name, server)
        if servers:
            client_opener(self._groups)

    async def bring(self, root: SessionId, servers: Mapping[str, ServerConfig], *, cwd: Path) -> None:
        """Agents of that tree that are made later have the tools of these servers, which are starting in `cwd`.

        Values are taken as they are. Servers that were brought before have ended. Raises: as `check`.
        """
        self.check(servers)
        await self.take(root)
        if not servers:
            return
        opener = client_opener(self._groups)
        self._secrets[root] = self._host.secrets.add(
            value for server in servers.values() for value in secret_values(server)
        )
        self._trees[root] = connections = [
            Connection(name, server, opener, cwd=cwd, clock=self._host.clock) for name, server in servers.items()
        ]
        for connection in connections:
            self._host.start(connection.run)

    async def take(self, root: SessionId) -> None:
        """The servers that were brought for that tree have ended. Shielded, bounded by what they take to end."""
        for connection in self._trees.pop(root, ()):
            await connection.aclose()
        if root in self._secrets:
            self._secrets.pop(root)()

    async def compose(self, agent: Agent) -> None:
        """The agent has the tools of its tree; its first request waits for servers that are still starting."""
        connections = self._trees.get(agent.session.root, ())
        with anyio.move_on_after(self._start_wait_s):
            for connection in connections:
                await connection.started.wait()
        for connection in connections:
            permissions = self._host.require(PERMISSIONS, needed_by="mcp")
            tools = ServerTools(agent.tools.offer, connection, permissions, self._host.secrets)
            tools.update()
            agent.scope.callback(connection.on_change(tools.update))

    async def aclose(self) -> None:
        """All have ended."""
        for root in list(self._trees):
            await self.take(root)


TREE_SERVERS: Seam[TreeServers] = Seam("mcp.tree-servers")
"""Where front ends bring servers for a tree."""
