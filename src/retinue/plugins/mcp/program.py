"""A server that is a program: its lines become messages of the SDK, and it ends with all that it has started.

The SDK's own transport takes quadratic time for long lines, knows no longest one, and drops an answer that it cannot
read, so that its caller waits for ever.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TextIO, TypeAlias

import anyio
from anyio.abc import Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from retinue.base.family import Family
from retinue.base.lines import MAX_LINE_BYTES, Lines
from retinue.base.pipe import Groups, ProgramPipe
from retinue.base.side_tasks import side_tasks
from retinue.plugins.mcp.frames import Unreadable, read_line, render_line

__all__ = ["Streams", "program_streams"]

_EOF_GRACE_S, _TERM_GRACE_S, _KILL_WAIT_S = 2.0, 2.0, 1.0
"""From the end of its input to SIGTERM, from there to SIGKILL, and to giving up."""

Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


@asynccontextmanager
async def program_streams(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], said: TextIO, groups: Groups | None
) -> AsyncGenerator[Streams]:
    """What the program says, until it ends its output, and where it is spoken to. `said` is its standard error.
    `groups` knows of it while it runs.

    After the block nothing that it started is left; that takes as long as the graces. Raises: OSError, ValueError.
    """
    pipe = ProgramPipe()
    try:
        process = await pipe.start(argv, cwd=cwd, env=env, stderr=said, groups=groups)
        to_us, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        writing, to_it = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with side_tasks() as group:
                group.start_soon(_read, pipe, to_us)
                group.start_soon(_write, pipe, to_it)
                with reading, writing:
                    yield reading, writing
        finally:
            try:
                await _ended(process, pipe)
            finally:
                if groups is not None:
                    groups.remove(process.pid)
    finally:
        pipe.close()


async def _ended(process: Process, pipe: ProgramPipe) -> None:
    family = Family(process.pid)
    with anyio.CancelScope(shield=True):
        family.look()
        pipe.end_input()
        async with anyio.create_task_group() as group:
            group.start_soon(pipe.drain)
            with anyio.move_on_after(_EOF_GRACE_S):
                await process.wait()
            group.cancel_scope.cancel()
        with anyio.move_on_after(_TERM_GRACE_S + 2 * _KILL_WAIT_S):
            if family.is_alive:
                await family.end(term_s=_TERM_GRACE_S, kill_s=_KILL_WAIT_S)
            await process.wait()


async def _read(pipe: ProgramPipe, to_us: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    lines = Lines(MAX_LINE_BYTES)
    async with to_us:
        with suppress(OSError, anyio.BrokenResourceError):  # either side has gone
            while data := await pipe.receive():
                for line in lines.feed(data):
                    if line is None:
                        return
                    for message in read_line(line):
                        if not isinstance(message, Unreadable):
                            await to_us.send(SessionMessage(message))
                        elif not message.is_request:  # whoever waits for this answer learns that it has none
                            await to_us.send(SessionMessage(message.error))


async def _write(pipe: ProgramPipe, to_it: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with to_it:
        with suppress(OSError):
            async for message in to_it:
                await pipe.send(render_line(message.message))
