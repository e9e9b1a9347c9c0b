"""What a program writes to its standard error: read away always, and the end of it kept for messages."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol, TextIO

import anyio

from retinue.base.side_tasks import side_tasks

__all__ = ["Diagnostics", "Mask", "diagnostics"]

_KEPT_BYTES = 4_000
_SHOWN_CHARS = 400


class Mask(Protocol):
    """Takes out of bytes what must not be repeated, before any of them are cut off."""

    def feed(self, data: bytes) -> bytes:
        """What can be shown of the bytes so far; the rest is held back until more has come."""
        ...


class Diagnostics:
    """The newest output of one program. `file` is where the program writes."""

    def __init__(self, file: TextIO, mask: Mask) -> None:
        self.file = file
        self._mask = mask
        self._kept = b""

    def add(self, data: bytes) -> None:
        """The program wrote this."""
        self._kept = (self._kept + self._mask.feed(data))[-_KEPT_BYTES:]

    @property
    def last_words(self) -> str:
        """The end of what was written, on one line, without what the program was told in confidence."""
        return " ".join(self._kept.decode(errors="replace").split())[-_SHOWN_CHARS:]


@asynccontextmanager
async def diagnostics(mask: Mask) -> AsyncGenerator[Diagnostics]:
    """A pipe that is read for as long as the block lasts."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with os.fdopen(writing, "w", encoding="utf-8") as file:
        kept = Diagnostics(file, mask)
        try:
            async with side_tasks() as group:
                group.start_soon(_read, reading, kept)
                yield kept
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
