"""The event loop of a schedule: it never sleeps. When it has nothing to do, the schedule says what happens next."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

import anyio

from retinue.testing.schedules.schedule import Schedule

__all__ = ["run_under"]

T = TypeVar("T")


def run_under(schedule: Schedule, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `main` returned, run to its end under the schedule. Raises: what it raises; Stuck if it cannot be ended.

    In one thread: nothing in it may wait for a thread, a socket or another process.
    """
    return anyio.run(main, backend_options={"loop_factory": lambda: _Loop(schedule)})


class _Selector(selectors.SelectSelector):
    """A loop asks it for input, and how long it may wait for that; any wait means that nothing is ready to run."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule

    def select(self, timeout: float | None = None):
        ready = super().select(0)
        if ready:
            return ready
        if timeout is not None and timeout <= 0:
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

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        super().__init__(_Selector(schedule))
        self.set_task_factory(_task)

    def time(self) -> float:
        """Seconds on the schedule's clock."""
        return self._schedule.now_s
