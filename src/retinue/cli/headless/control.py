"""Stopping headless work: kept as it is by a signal or a reader that left, closed in order by a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import anyio
from anyio.abc import TaskStatus

from retinue.agent.phase import Cause
from retinue.cli.headless.background import Background
from retinue.cli.headless.progress import say
from retinue.cli.signalled import ending_signals
from retinue.compose.run import Run
from retinue.host.host import Host

__all__ = ["GRACE_S", "Control", "Finished"]

GRACE_S = 8.0
"""How long tools may take to let go after a stop; what takes longer goes on after `resume`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Who was still at work when the run was over: ids of agents and tasks."""

    stopped: tuple[str, ...] = ()
    """Ended on purpose."""
    abandoned: tuple[str, ...] = ()
    """Left as they were."""


class Control:
    """Why and how one headless run stops.

    A limit closes the root's turn, and with it the children it waits for. A suspension closes nothing: the process
    ends as a crash would end it, but in order. It overtakes a limit that is still being carried out.
    """

    def __init__(self, at_once: Callable[[int], object], *, grace_s: float = GRACE_S) -> None:
        """`at_once` is called with the exit code when a second signal arrives, or when a suspension has taken
        `grace_s`; it ends the process."""
        self.opening = anyio.CancelScope()
        """Around everything; cancelled by a stop that comes before agents can run, and never later."""
        self.beginning = anyio.CancelScope()
        """Around the start of the run, once agents can run; cancelled by a stop that comes before there is a run."""
        self.limit: Cause | None = None
        """The limit that was reached first."""
        self.signal: int | None = None
        self.is_over = False
        """What runs has ended and only output is left, which may take its time."""
        self._at_once = at_once
        self._grace_s = grace_s
        self._stopping = anyio.Event()
        self._suspending = anyio.Event()
        self._is_open = False
        self._run: Run | None = None
        self._work: Background | None = None

    @property
    def is_suspending(self) -> bool:
        """Everything is left as it is, and the process ends."""
        return self._suspending.is_set()

    @property
    def exit_code(self) -> int | None:
        """What the process ends with because of a signal: 129, 130 or 143."""
        return None if self.signal is None else 128 + self.signal

    async def listen(self, *, task_status: TaskStatus[None]) -> None:
        """Signals suspend the run; runs until it is cancelled."""
        with anyio.open_signal_receiver(*ending_signals()) as signals:
            task_status.started()
            async for number in signals:
                if self.signal is not None:
                    self._at_once(128 + number)
                self.signal = number
                say("stopping in order; a second signal ends it at once")
                self.suspend()

    async def hasten(self) -> None:
        """A suspension that takes longer than the grace ends at once."""
        await self._suspending.wait()
        await anyio.sleep(self._grace_s)
        if not self.is_over:
            self._at_once(self.exit_code or 1)

    async def expire(self, timeout_s: float) -> None:
        """The run is stopped after `timeout_s`."""
        await anyio.sleep(timeout_s)
        self.stop(Cause("limit", "timeout"))

    def stop(self, limit: Cause) -> None:
        """The root ends its turn as soon as it can, and with it the children that it waits for.

        Mailboxes stay as they are. Children in the background are left to the end of the process.
        """
        if self.limit is None and not self.is_suspending:
            self.limit = limit
            if self._run is not None:
                self._run.agent.cancel(limit, keep_mailbox=True)
            self._stop()

    def suspend(self) -> None:
        """Nothing is closed, settled or withdrawn: what runs is cut off where it is and goes on after `resume`."""
        self._suspending.set()
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        if self._run is None:
            (self.beginning if self._is_open else self.opening).cancel()

    def opened(self) -> bool:
        """Agents can run from now on: a stop must let them end in order. False if a stop came before."""
        self._is_open = True
        return not self._stopping.is_set()

    def attach(self, run: Run, host: Host) -> None:
        """`run` is what a stop stops from now on; one that came before is made up for."""
        self._run = run
        self._work = Background(host, run.agent)
        if self.limit is not None:
            run.agent.cancel(self.limit, keep_mailbox=True)

    def at_work(self) -> tuple[str, ...]:
        """Who of the tree is at work besides its root."""
        return self._work.ids() if self._work is not None else ()

    async def finished(self, on_finish: Literal["drain", "stop"], timeout_s: float | None) -> Finished:
        """The root owes nothing and nobody of its tree works any more, as far as the bounds allow."""
        run, work = self._run, self._work
        assert run is not None
        assert work is not None
        stopped: tuple[str, ...] = ()
        await self._unless_stopped(run, run.agent.wait_idle)
        if not self._stopping.is_set() and on_finish == "stop":
            stopped = work.ids()
            await _first(work.stop, self._suspending.wait)
        elif not self._stopping.is_set():
            with anyio.move_on_after(timeout_s):
                await self._unless_stopped(run, work.wait_quiet)
        left = work.ids()
        if self.is_suspending:
            await work.suspend()
            stopped = tuple(id for id in stopped if id not in left)
        return Finished(stopped=stopped, abandoned=left)

    async def _unless_stopped(self, run: Run, wait: Callable[[], Awaitable[None]]) -> None:
        """`wait` is over; or a limit came, and the root is idle or has had its time; or a suspension came."""

        async def stopped() -> None:
            await self._stopping.wait()
            with anyio.move_on_after(self._grace_s):
                await _first(run.agent.wait_idle, self._suspending.wait)

        await _first(wait, stopped)


async def _first(*waits: Callable[[], Awaitable[object]]) -> None:
    """One of them is over, and the others were cancelled."""

    async def run(wait: Callable[[], Awaitable[object]]) -> None:
        await wait()
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for wait in waits:
            group.start_soon(run, wait)
