"""In which order the calls of one step run: safe ones overlap, an exclusive one is a barrier."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import anyio
from anyio.abc import TaskStatus

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
    pool = anyio.Semaphore(width)
    failures: list[Exception] = []

    async def one(call: C, *, task_status: TaskStatus[None]) -> None:
        is_ready = False

        def ready() -> None:
            nonlocal is_ready
            if not is_ready:
                is_ready = True
                task_status.started()

        try:
            await run(call, ready)
        except Exception as error:
            failures.append(error)
        finally:
            if is_pooled(call):
                pool.release()
            ready()

    async with anyio.create_task_group() as group:
        while at < len(calls) and not failures and is_safe(calls[at]):
            if is_pooled(calls[at]):
                await pool.acquire()
                if failures or not is_safe(calls[at]):
                    pool.release()
                    break
            await group.start(one, calls[at])
            at += 1
    if failures:
        raise failures[0]
    return at


def _nothing() -> None:
    pass
