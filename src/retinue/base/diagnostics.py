"""What a program writes to its standard error: read away always, and the end of it kept for messages."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import TextIO

import anyio

__all__ = ["Diagnostics", "diagnostics"]

_KEPT_BYTES = 4_000
_SHOWN_CHARS = 400
_MIN_SECRET_CHARS = 8


class Diagnostics:
    """The newest output of one program. `file` is where the program writes."""

    def __init__(self, file: TextIO, secrets: Iterable[str]) -> None:
        self.file = file
        self._secrets = tuple(secret for secret in secrets if len(secret) >= _MIN_SECRET_CHARS)
        self._kept = b""

    def add(self, data: bytes) -> None:
        """The program wrote this."""
        self._kept = (self._kept + data)[-_KEPT_BYTES:]

    @property
    def last_words(self) -> str:
        """The end of what was written, on one line, without what the program was told in confidence."""
        text = " ".join(self._kept.decode(errors="replace").split())
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return text[-_SHOWN_CHARS:]


@asynccontextmanager
async def diagnostics(secrets: Iterable[str]) -> AsyncGenerator[Diagnostics]:
    """A pipe that is read for as long as the block lasts."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with os.fdopen(writing, "w", encoding="utf-8") as file:
        kept = Diagnostics(file, secrets)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_read, reading, kept)
                try:
                    yield kept
                finally:
                    group.cancel_scope.cancel()
        finally:
            os.close(reading)


async def _read(fd: int, kept: Diagnostics) -> None:
    while True:
        await anyio.wait_readable(fd)
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            continue
        if not data:
            return
        kept.add(data)
