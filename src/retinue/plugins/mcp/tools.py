"""The tools of one server among those of a scope: names that cannot collide, and what is left out.

A tool is called `mcp__SERVER__TOOL`. Letters that a name may not have become `_`, and a name that is cut or would
collide ends in a hash of the whole, so that the same tool always has the same name.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Sequence

from retinue.base.json import JSONObject, encode
from retinue.base.scope import Undo
from retinue.errors import BadInput, RetinueError
from retinue.plugins.mcp.connection import Connection, Offer
from retinue.plugins.permissions import Permissions
from retinue.tools.function import schema_tool
from retinue.tools.secrets import Secrets
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["ServerTools", "tool_names"]

_log = logging.getLogger("retinue")

_NAME_CHARS = 64
_MAX_TOOLS = 200
_MAX_DESCRIPTION = 4_000
_MAX_SCHEMA_BYTES = 64 * 1024
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")


class ServerTools:
    """What one server offers, as tools of one scope."""

    def __init__(
        self, add: Callable[[Tool], Undo], connection: Connection, permissions: Permissions, secrets: Secrets
    ) -> None:
        """`add` registers a tool in the scope; `secrets` are taken out of what the server says about its tools."""
        self._secrets = secrets
        self._add = add
        self._connection = connection
        self._permissions = permissions
        self._known: dict[str, tuple[Offer, Undo]] = {}

    def update(self) -> None:
        """The scope has exactly the tools that the server offers now; those that did not change stay as they are."""
        chosen = self._chosen()
        names = tool_names(self._connection.name, [offer.name for offer in chosen])
        wanted = {names[offer.name]: offer for offer in chosen}
        for name, (offer, undo) in list(self._known.items()):
            if wanted.get(name) != offer:
                undo()
                del self._known[name]
        for name, offer in wanted.items():
            if name not in self._known:
                try:
                    self._known[name] = offer, self._add(self._tool(name, offer))
                except RetinueError as error:
                    _log.warning("tool %s of MCP server %s is left out: %s", offer.name, self._connection.name, error)

    def clear(self) -> None:
        """The scope has none of them."""
        for _, undo in self._known.values():
            undo()
        self._known.clear()

    def _chosen(self) -> list[Offer]:
        server = self._connection.server
        unique = {offer.name: offer for offer in self._connection.offers}
        chosen = [
            offer
            for offer in unique.values()
            if offer.name not in server.deny_tools and (server.tools is None or offer.name in server.tools)
        ]
        if len(chosen) > _MAX_TOOLS:
            _log.warning(
                "MCP server %s offers %d tools; the first %d are used", self._connection.name, len(chosen), _MAX_TOOLS
            )
        return chosen[:_MAX_TOOLS]

    def _tool(self, name: str, offer: Offer) -> Tool:
        if len(encode(offer.parameters)) > _MAX_SCHEMA_BYTES:
            raise BadInput(f"its schema is larger than {_MAX_SCHEMA_BYTES // 1024} kB")
        connection, permissions = self._connection, self._permissions
        is_read_only = offer.name in connection.server.read_only

        async def body(ctx: ToolContext, arguments: JSONObject) -> ToolResult:
            if ctx.caller is not None and not is_read_only:
                permissions.check_foreign(ctx.caller, name)
            return await connection.call(offer.name, arguments)

        words = (
            self._secrets.mask(" ".join(offer.description.split("\0"))).strip()
            or f"The tool {offer.name} of {connection.name}."
        )
        return schema_tool(
            name=name,
            description=words if len(words) <= _MAX_DESCRIPTION else words[: _MAX_DESCRIPTION - 1] + "…",
            parameters={key: self._secrets.mask_json(value) for key, value in offer.parameters.items()},
            body=body,
            safe=is_read_only,
        )


def tool_names(server: str, tools: Sequence[str]) -> dict[str, str]:
    """The name of each of a server's tools here. Each follows from the two names alone, unless it would collide."""
    plain = {tool: f"mcp__{server}__{_FORBIDDEN.sub('_', tool)}" for tool in tools}
    taken = list(plain.values())
    return {
        tool: name if len(name) <= _NAME_CHARS and taken.count(name) == 1 else _hashed(name, server, tool)
        for tool, name in plain.items()
    }


def _hashed(name: str, server: str, tool: str) -> str:
    mark = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{name[: _NAME_CHARS - 9]}_{mark}"
