"""Resources of servers as reads: `mcp_resources` lists them, `mcp_read` reads one. Shown as text, never acted on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from retinue.errors import ToolFailure
from retinue.plugins.mcp.connection import Connection, Resource
from retinue.tools.function import tool
from retinue.tools.tool import Tool, ToolResult

__all__ = ["resource_tools"]

_MAX_LINES = 200


def resource_tools(connections: Mapping[str, Connection]) -> list[Tool]:
    """The two tools over `connections`."""

    def known(server: str) -> Connection:
        connection = connections.get(server)
        if connection is None:
            raise ToolFailure("NOT_FOUND", f"there is no MCP server {server!r}; there are {', '.join(connections)}")
        return connection

    @tool(safe=True)
    async def mcp_resources(server: Annotated[str, "The name of the server; empty for all."] = "") -> str:
        """List what MCP servers let you read: one line each, with the address that mcp_read takes."""
        lines: list[str] = []
        for name in [server] if server else connections:
            connection = known(name)
            if not connection.has_resources:
                continue
            try:
                lines += [_line(name, resource) for resource in await connection.resources()]
            except ToolFailure as failure:
                if server:
                    raise
                lines.append(f"{name}: {failure}")
        if len(lines) > _MAX_LINES:
            lines = [*lines[:_MAX_LINES], f"[{len(lines) - _MAX_LINES} more; name one server]"]
        return "\n".join(lines) or "(no resources)"

    @tool(safe=True)
    async def mcp_read(
        server: Annotated[str, "The name of the server."], uri: Annotated[str, "As mcp_resources shows it."]
    ) -> ToolResult:
        """Read one resource of an MCP server."""
        return await known(server).read(uri)

    return [mcp_resources, mcp_read]


def _line(server: str, resource: Resource) -> str:
    words = " ".join(f"{resource.name} {resource.description}".split())
    kind = f" ({resource.media_type})" if resource.media_type else ""
    return f"{server} {resource.uri}{kind} — {words[:200]}"
