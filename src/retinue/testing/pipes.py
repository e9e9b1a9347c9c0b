"""Two ends of a connection in memory: what one sends the other receives, cut as the test likes."""

from __future__ import annotations

import anyio

__all__ = ["MemoryPipe", "pipe_pair"]


class MemoryPipe:
    """One end. `close` ends what the other end receives, and what it sends fails from then on."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._changed = anyio.Event()
        self._is_ended = False
        """Nothing more comes."""
        self._is_unread = False
        """Nobody reads what is sent."""
        self._other: MemoryPipe | None = None

    async def receive(self) -> bytes:
        """The next piece that was sent; none at the end."""
        while not self._pieces:
            if self._is_ended:
                return b""
            await self._changed.wait()
        return self._pieces.pop(0)

    async def send(self, data: bytes) -> None:
        """The other end has the piece. Raises: BrokenPipeError if it is closed."""
        self.give(data)

    def give(self, data: bytes) -> None:
        """Like `send`, at once."""
        assert self._other is not None
        if self._is_unread:
            raise BrokenPipeError("the other end is closed")
        if data:
            self._other._pieces.append(data)
            self._other._change()

    def end(self) -> None:
        """This end sends no more, and still receives."""
        assert self._other is not None
        self._other._is_ended = True
        self._other._change()

    def close(self) -> None:
        """This end has gone."""
        assert self._other is not None
        self._is_ended = self._other._is_ended = True
        self._is_unread = self._other._is_unread = True
        self._change()
        self._other._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def pipe_pair() -> tuple[MemoryPipe, MemoryPipe]:
    """Both ends of a new connection."""
    one, other = MemoryPipe(), MemoryPipe()
    one._other, other._other = other, one  # pyright: ignore[reportPrivateUsage]
    return one, other
