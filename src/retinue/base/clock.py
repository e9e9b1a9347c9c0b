"""Time as a dependency, so that tests own it. Durations are seconds, points in logs are epoch milliseconds."""

from __future__ import annotations

import time
from typing import Protocol

import anyio

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """What the runtime asks about time."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump when the wall clock is set."""
        ...

    def elapsed_s(self) -> float:
        """Seconds on a clock that never goes back and that counts time asleep."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`. Cancelling ends the wait at once."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    if hasattr(time, "CLOCK_BOOTTIME"):

        def elapsed_s(self) -> float:
            return time.clock_gettime(time.CLOCK_BOOTTIME)
    else:

        def elapsed_s(self) -> float:
            return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)
