"""Bounds what a tool result shows; the whole of a longer one is kept in a private file of the home."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import Struct

from retinue.host.host import Host
from retinue.tools.output import INLINE_LIMIT, bound_result
from retinue.tools.secrets import redact_result
from retinue.tools.tool import Tool, ToolContext, ToolResult

__all__ = ["OPTIONS", "OutputConfig", "plugin"]


class OutputConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much is shown."""

    inline_limit: int = INLINE_LIMIT
    """Bytes of text in one result."""


OPTIONS = OutputConfig


@asynccontextmanager
async def plugin(host: Host, config: OutputConfig) -> AsyncGenerator[None]:
    """Every result is bounded and shows no secret of the host. Without a home, what is cut off is not kept."""
    home, secrets = host.options.home, host.options.secrets

    async def finish(tool: Tool | None, context: ToolContext, result: ToolResult) -> ToolResult:
        limit = tool.output_limit if tool is not None and tool.output_limit is not None else config.inline_limit
        folder = None if home is None else home / "spill"
        return await bound_result(redact_result(result, secrets), limit=limit, folder=folder, key=context.key)

    with host.add_finisher(finish):
        yield
