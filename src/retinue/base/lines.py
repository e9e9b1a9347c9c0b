"""Streams of bytes, and the lines in them, none longer than memory can bear."""

from __future__ import annotations

from typing import Protocol

__all__ = ["MAX_LINE_BYTES", "Lines", "Pipe"]

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Prompts carry images, but memory has an end."""


class Pipe(Protocol):
    """Two streams of bytes. Its methods are never called twice at the same time each."""

    async def receive(self) -> bytes:
        """Some bytes; none at the end of the stream, and ever after."""
        ...

    async def send(self, data: bytes) -> None:
        """The bytes are on their way. Raises: OSError if nobody reads any more."""
        ...


class Lines:
    """Cuts a stream into lines. A line that is too long is None, once its end has come."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._is_skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that end in `data`."""
        found: list[bytes | None] = []
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            found.append(None if self._is_skipping else bytes(self._rest))
            self._rest.clear()
            self._is_skipping = False
        self._add(rest)
        return found

    def _add(self, part: bytes) -> None:
        if not self._is_skipping:
            self._rest += part
        if len(self._rest) > self._max_bytes:
            self._rest.clear()
            self._is_skipping = True
