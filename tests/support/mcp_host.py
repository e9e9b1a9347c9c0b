"""An MCP host for tests, made with the official SDK: it starts `retinue mcp` and calls its tools."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.support.command import Place

__all__ = ["Host", "mcp_host"]

_RECORDING = 'echo $$ > "$0"; exec "$@"'
_numbers = count()


@dataclass
class Host:
    """A host with its server."""

    client: Client
    pid: int
    """The process of the server."""
    progress: list[float] = field(default_factory=list)
    """How long a call had been waiting, as the server told."""

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What the tool answers; it must not fail."""
        answer = await self.client.call_tool(tool, arguments, progress_callback=self._told)
        assert not answer.is_error, answer.content
        assert answer.structured_content is not None
        return answer.structured_content

    async def failure(self, tool: str, **arguments: Any) -> str:
        """What the tool says when it fails; it must."""
        answer = await self.client.call_tool(tool, arguments)
        assert answer.is_error
        (block,) = answer.content
        return getattr(block, "text", "")

    async def _told(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append(progress)

    def kill(self) -> None:
        """The server ends as in a power failure."""
        os.kill(self.pid, signal.SIGKILL)


@asynccontextmanager
async def mcp_host(place: Place, *options: str) -> AsyncGenerator[Host]:
    """A host in the place's folder, whose agents ask the place's server."""
    assert place.url is not None
    noted = place.root / f"server-{next(_numbers)}.pid"
    served = ["-m", "retinue", "mcp", "--model", "openai-compatible:scripted", "--base-url", place.url, *options]
    server = StdioServerParameters(
        command="/bin/sh",
        args=["-c", _RECORDING, str(noted), sys.executable, *served],
        env=place.environment(),
        cwd=place.folder,
    )
    async with Client(server) as client:
        yield Host(client, int(noted.read_text()))
