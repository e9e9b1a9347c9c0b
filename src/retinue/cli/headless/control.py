"""Stopping headless work in order: by a signal, by a limit, or because nobody reads the output any more."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import anyio
from anyio.abc import TaskStatus

from retinue.agent.phase import Cause
from retinue.cli.headless.background import Background
from retinue.cli.headless.progress import say
from retinue.compose.run import Run
from retinue.host.host import Host

__all__ = ["GRACE_S", "Control", "Finished"]

GRACE_S = 8.0
"""How long agents may take to close their turns after a stop; what takes longer goes on after `resume`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Who was still at work when the root was done: ids of agents and tasks."""

    stopped: tuple[str, ...] = ()
    """Ended on purpose."""
    abandoned: tuple[str, ...] = ()
    """Left as they were."""


class Control:
    """Why and how one headless run stops. The first cause wins."""

    def __init__(self, at_once: Callable[[int], object]) -> None:
        """`at_once` is called with the exit code when a second signal arrives; it ends the process."""
        self.opening = anyio.CancelScope()
        """Around everything; cancelled by a stop that comes before agents can run, and never later."""
        self.beginning = anyio.CancelScope()
        """Around the start of the run, once agents can run; cancelled by a stop that comes before there is a run."""
        self.cause: Cause | None = None
        self.signal: int | None = None
        self._at_once = at_once
        self._stopping = anyio.Event()
        self._is_open = False
        self._run: Run | None = None
        self._work: Background | None = None

    @property
    def exit_code(self) -> int | None:
        """What the process ends with because of a signal: 130 or 143."""
        return None if self.signal is None else 128 + self.signal

    async def listen(self, *, task_status: TaskStatus[None]) -> None:
        """Signals stop the run; runs until it is cancelled."""
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                if self.signal is not None:
                    self._at_once(128 + number)
                self.signal = number
                say("stopping in order; a second signal ends it at once")
                self.stop(Cause("user"))

    async def expire(self, timeout_s: float) -> None:
        """The run is stopped after `timeout_s`."""
        await anyio.sleep(timeout_s)
        self.stop(Cause("limit", "timeout"))

    def stop(self, cause: Cause) -> None:
        """The root ends its turn as soon as it can, and with it the children that it waits for.

        Mailboxes stay as they are. Children in the background are left to the end of the process: like a crash, it
        settles nothing, and they go on after `resume`.
        """
        if self.cause is None:
            self.cause = cause
            self._stopping.set()
            if self._run is not None:
                self._run.agent.cancel(cause, keep_mailbox=True)
            elif self._is_open:
                self.beginning.cancel()
            else:
                self.opening.cancel()

    def opened(self) -> bool:
        """Agents can run from now on: a stop must let them close their turns. False if a stop came before."""
        self._is_open = True
        return self.cause is None

    def attach(self, run: Run, host: Host) -> None:
        """`run` is what a stop stops from now on; one that came before is made up for."""
        self._run = run
        self._work = Background(host, run.agent)
        if self.cause is not None:
            run.agent.cancel(self.cause, keep_mailbox=True)

    async def finished(self, on_finish: Literal["drain", "stop"], timeout_s: float | None) -> Finished:
        """The root owes nothing and nobody of its tree works any more, as far as the bounds allow."""
        run, work = self._run, self._work
        assert run is not None
        assert work is not None
        await self._until_stopped(run, run.agent.wait_idle)
        if self.cause is None and on_finish == "stop":
            stopped = work.ids()
            await work.stop()
            return Finished(stopped=stopped, abandoned=work.ids())
        if self.cause is None:
            with anyio.move_on_after(timeout_s):
                await self._until_stopped(run, work.wait_quiet)
        return Finished(abandoned=work.ids())

    async def _until_stopped(self, run: Run, wait: Callable[[], Awaitable[None]]) -> None:
        """`wait` is over; or a stop came, and the root is idle or has had its time."""

        async def end() -> None:
            await self._stopping.wait()
            with anyio.move_on_after(GRACE_S):
                await run.agent.wait_idle()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(end)
            await wait()
            group.cancel_scope.cancel()
