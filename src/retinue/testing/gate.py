"""Gates: how a test decides when something goes on, and knows that it has got there. No test needs to wait for time."""

from __future__ import annotations

from collections.abc import Callable

import anyio

__all__ = ["Gate"]


class Gate:
    """Holds whoever passes until `open`. Closed at first; once open it stays open until `close`."""

    def __init__(self, name: str = "gate") -> None:
        self.name = name
        self.reached = 0
        """How often somebody came to the gate, open or not."""
        self._opened = anyio.Event()
        self._arrival = anyio.Event()
        self._callbacks: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Gate {self.name!r} {'open' if self.is_open else 'closed'}, reached {self.reached} times>"

    @property
    def is_open(self) -> bool:
        """Nobody waits here."""
        return self._opened.is_set()

    def open(self) -> None:
        """Everybody who waits goes on, and later ones do not wait."""
        self._opened.set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def close(self) -> None:
        """Who comes from now on waits again."""
        if self.is_open:
            self._opened = anyio.Event()

    async def wait(self) -> None:
        """The gate is open. Cancelling ends the wait."""
        self._arrive()
        await self._opened.wait()

    def when_open(self, callback: Callable[[], None]) -> None:
        """`callback` is called as soon as the gate is open: now, or by `open`."""
        self._arrive()
        if self.is_open:
            callback()
        else:
            self._callbacks.append(callback)

    def _arrive(self) -> None:
        self.reached += 1
        self._arrival.set()
        self._arrival = anyio.Event()

    async def wait_reached(self, times: int = 1) -> None:
        """Somebody has come to the gate, `times` times in all."""
        while self.reached < times:
            await self._arrival.wait()
