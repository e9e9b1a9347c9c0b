"""A clock that stands still until a test moves it."""

from __future__ import annotations

import math

import anyio
import anyio.lowlevel

__all__ = ["FakeClock"]

_YIELDS = 20
"""Turns of the event loop that whoever was woken gets before time goes on."""


class _Sleeper:
    __slots__ = ("due_s", "length_s", "woken")

    def __init__(self, due_s: float, length_s: float) -> None:
        self.due_s = due_s
        self.length_s = length_s
        self.woken = anyio.Event()


class FakeClock:
    """A Clock. Both of its hands move together, and only with `advance`; `set_wall` moves one of them alone."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = now_ms
        self._elapsed_s = 0.0
        self._sleepers: list[_Sleeper] = []
        self._arrival = anyio.Event()

    def now_ms(self) -> int:
        """See Clock."""
        return self._start_ms + round(self._elapsed_s * 1000)

    def set_wall(self, seconds: float) -> None:
        """Somebody has set the wall clock forwards, or backwards if negative. No time has passed."""
        self._start_ms += round(seconds * 1000)

    def elapsed_s(self) -> float:
        """See Clock. 0 at first."""
        return self._elapsed_s

    async def sleep(self, seconds: float) -> None:
        """See Clock: the wait ends when the clock has been moved that far."""
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        sleeper = _Sleeper(self._elapsed_s + seconds, seconds)
        self._sleepers.append(sleeper)
        self._arrival.set()
        self._arrival = anyio.Event()
        try:
            await sleeper.woken.wait()
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    @property
    def sleeping(self) -> tuple[float, ...]:
        """How long each of those who sleep now has asked for, in seconds, in the order in which they began."""
        return tuple(sleeper.length_s for sleeper in self._sleepers)

    async def wait_sleeping(self, seconds: float) -> None:
        """Somebody sleeps who has asked for about so long."""
        while not any(math.isclose(length, seconds, rel_tol=1e-6) for length in self.sleeping):
            await self._arrival.wait()

    async def advance(self, seconds: float) -> None:
        """So much time has passed. Sleepers woke when they were due, one after the other.

        Between two of them the loop runs some turns, so that one who sleeps again within this time wakes again. What
        else they do may still be going on: wait for it.
        """
        end = self._elapsed_s + seconds
        while self._sleepers:
            first = min(self._sleepers, key=lambda sleeper: sleeper.due_s)
            if first.due_s > end:
                break
            self._elapsed_s = max(self._elapsed_s, first.due_s)
            self._sleepers.remove(first)
            first.woken.set()
            for _ in range(_YIELDS):
                await anyio.lowlevel.checkpoint()
        self._elapsed_s = max(self._elapsed_s, end)
