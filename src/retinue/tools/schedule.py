"""In which order the calls of one step run: safe ones overlap, an exclusive one is a barrier."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import anyio

__all__ = ["Ready", "run_in_order"]

C = TypeVar("C")


class Ready(Protocol):
    """Told by a running call that its policy has passed and its body begins, so that the next call may start."""

    def __call__(self) -> None: ...


async def run_in_order(
    calls: Sequence[C],
    *,
    is_safe: Callable[[C], bool],
    is_pooled: Callable[[C], bool],
    run: Callable[[C, Ready], Awaitable[None]],
    width: int,
) -> None:
    """Every call ran, or the caller was cancelled.

    Calls start in order, and one starts only when the one before it called `ready` or ended, so that what happens
    before a body stays in order. A call that `is_safe` overlaps its safe neighbours, at most `width` pooled bodies at
    once; any other runs alone. `is_safe` is asked right before each start. `run` must turn failures into values: what
    it raises stops further starts, lets running calls end, and is raised then. Source: behaviour TD-01..TD-04, TD-11.
    """
    at = 0
    while at < len(calls):
        if not is_safe(calls[at]) or at + 1 == len(calls):
            await run(calls[at], _nothing)
            at += 1
        else:
            at = await _overlap(calls, at, is_safe=is_safe, is_pooled=is_pooled, run=run, width=width)


async def _overlap(
    calls: Sequence[C],
    at: int,
    *,
    is_safe: Callable[[C], bool],
    is_pooled: Callable[[C], bool],
    run: Callable[[C, Ready], Awaitable[None]],
    width: int,
) -> int:
    """The calls from `at` on, which is safe, ran up to the next exclusive one; the answer is where that stands.

    All are tasks from the first moment, so those whose policy need not wait begin in one round of the loop.
    """
    pool = anyio.Semaphore(width, fast_acquire=True)
    line = _Line(at)
    end = len(calls)
    failures: list[Exception] = []

    async def one(index: int) -> None:
        nonlocal end
        call = calls[index]
        holds_place = False
        try:
            await line.turn(index)
            if is_pooled(call):
                await pool.acquire()
                holds_place = True
            if failures or index >= end:
                return
            if is_safe(call):
                await run(call, lambda: line.pass_on(index))
            else:
                end = index
        except Exception as error:
            failures.append(error)
        finally:
            if holds_place:
                pool.release()
            line.pass_on(index)

    async with anyio.create_task_group() as group:
        for index in range(at, len(calls)):
            group.start_soon(one, index)
    if failures:
        raise failures[0]
    return end


class _Line:
    """Calls that wait for their turn to start, by their index."""

    __slots__ = ("_next", "_waiting")

    def __init__(self, first: int) -> None:
        self._next = first
        self._waiting: dict[int, anyio.Event] = {}

    async def turn(self, index: int) -> None:
        """The one before has passed on."""
        if self._next < index:
            self._waiting[index] = anyio.Event()
            await self._waiting[index].wait()

    def pass_on(self, index: int) -> None:
        """It is the next one's turn, if it was still that of `index`."""
        if self._next == index:
            self._next = index + 1
            waiting = self._waiting.pop(self._next, None)
            if waiting is not None:
                waiting.set()


def _nothing() -> None:
    pass
