"""Ending a command that serves when a signal says so: in order, within a bound, and at once when it is said twice."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskStatus

from retinue.base.side_tasks import side_tasks

__all__ = ["Ending", "ending_signals", "until_signalled"]


def ending_signals() -> tuple[signal.Signals, ...]:
    """Those that end a command in order: SIGINT, SIGTERM, and SIGHUP unless whoever started us ignores it (`nohup`)."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class Ending:
    """How the block comes to its end."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """For the caller to enter: what a signal cuts off. What the block does outside of it goes on, within the bound."""
    exit_code: int = 0
    """129, 130 or 143 after a signal."""


@asynccontextmanager
async def until_signalled(grace_s: float) -> AsyncGenerator[Ending]:
    """One of `ending_signals` cancels the scope of what is given. A second one ends the process at once.

    So does a block that has not ended `grace_s` after the first.
    """
    ending = Ending()

    async def listen(*, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(*ending_signals()) as signals:
            task_status.started()
            async for number in signals:
                if ending.exit_code:
                    os._exit(128 + number)
                ending.exit_code = 128 + number
                ending.scope.cancel()
                watched.start_soon(hasten)

    async def hasten() -> None:
        await anyio.sleep(grace_s)
        os._exit(ending.exit_code)

    async with side_tasks() as watched:
        await watched.start(listen)
        yield ending
