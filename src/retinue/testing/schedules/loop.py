"""The event loop of a schedule: it never sleeps. When it has nothing to do, the schedule says what happens next."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from retinue.testing.schedules.schedule import Schedule

__all__ = ["run_under"]

T = TypeVar("T")

_THREAD_S = 60.0
"""How long a thread may take before the loop looks again."""


def run_under(schedule: Schedule, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `main` returned, run to its end under the schedule. Raises: what it raises; Stuck if it cannot be ended.

    What helper threads do takes no time: while one is at work, the schedule decides nothing. Nothing may wait for a
    socket or another process.
    """
    selector = _Selector(schedule)

    async def watched() -> T:
        selector.threads = anyio.to_thread.current_default_thread_limiter()
        return await main()

    return anyio.run(watched, backend_options={"loop_factory": lambda: _Loop(schedule, selector)})


class _Selector(selectors.SelectSelector):
    """A loop asks it for input, and how long it may wait for that; any wait means that nothing is ready to run."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule
        self.threads: anyio.CapacityLimiter | None = None
        """Holds a token for each helper thread at work."""

    def select(self, timeout: float | None = None):
        is_ready = timeout is not None and timeout <= 0
        if self.threads is not None and self.threads.borrowed_tokens:
            return super().select(0 if is_ready else _THREAD_S)
        ready = super().select(0)
        if ready:
            return ready
        if is_ready:
            self._schedule.busy()
        else:
            self._schedule.rest(timeout)
        return ready


class _Task(asyncio.Task[Any]):
    """Hashed by age, so that sets of tasks have the same order in every run."""

    _ages = count()

    def __init__(self, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._age = next(self._ages)
        super().__init__(coro, **options)

    __eq__ = object.__eq__

    def __hash__(self) -> int:
        return self._age


def _task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> _Task:
    return _Task(coro, loop=loop, **options)


class _Loop(asyncio.SelectorEventLoop):
    """Its time is the schedule's."""

    def __init__(self, schedule: Schedule, selector: _Selector) -> None:
        self._schedule = schedule
        super().__init__(selector)
        self.set_task_factory(_task)

    def time(self) -> float:
        """Seconds on the schedule's clock."""
        return self._schedule.now_s
