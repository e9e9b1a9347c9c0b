"""A host over a pipe: what it writes becomes messages of the SDK, and each of its requests gets an answer.

The SDK's own transport reads and writes in threads that nobody can call off: a host that reads no more would keep a
server that is told to end. It also passes over frames that it cannot read. Here neither is so.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from retinue.base.lines import MAX_LINE_BYTES, Lines, Pipe
from retinue.base.side_tasks import side_tasks
from retinue.plugins.mcp.frames import Unreadable, read_line, render_line, too_long

__all__ = ["Reading", "Writing", "host_streams"]

_LAST_S = 1.0
"""How long answers that are ready may take to leave after the host's last word."""

Reading: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
Writing: TypeAlias = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def host_streams(pipe: Pipe, *, max_line_bytes: int = MAX_LINE_BYTES) -> AsyncGenerator[tuple[Reading, Writing]]:
    """What the host says, until it closes the stream, and where it is answered.

    What the host has not taken a moment after the block is dropped; so is all that is for a host that has gone.
    """
    to_server, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writing, to_host = anyio.create_memory_object_stream[SessionMessage](0)
    written = anyio.Event()

    async def write() -> None:
        async with to_host:
            async for message in to_host:
                with suppress(OSError):
                    await pipe.send(render_line(message.message))
        written.set()

    async with side_tasks() as group:
        group.start_soon(_read, pipe, max_line_bytes, to_server, writing.clone())
        group.start_soon(write)
        with reading, writing:
            yield reading, writing
        with anyio.move_on_after(_LAST_S):
            await written.wait()


async def _read(
    pipe: Pipe, max_line_bytes: int, to_server: MemoryObjectSendStream[SessionMessage | Exception], refusing: Writing
) -> None:
    lines = Lines(max_line_bytes)
    async with to_server, refusing:
        with suppress(OSError, anyio.BrokenResourceError):  # the host, or the server, has gone
            while data := await pipe.receive():
                for line in lines.feed(data):
                    for message in [too_long(max_line_bytes)] if line is None else read_line(line):
                        if isinstance(message, Unreadable):
                            await refusing.send(SessionMessage(message.error))
                        else:
                            await to_server.send(SessionMessage(message))
