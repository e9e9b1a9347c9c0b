"""Stopping headless work in order: by a signal, by a limit, or because nobody reads the output any more."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import Literal

import anyio
from anyio.abc import TaskStatus

from retinue.agent.agent import Agent
from retinue.agent.phase import Cause
from retinue.agent.registry import Agents
from retinue.compose.run import Run

__all__ = ["GRACE_S", "Control"]

GRACE_S = 8.0
"""How long agents may take to close their turns after a stop; what takes longer goes on after `resume`."""


class Control:
    """Why and how one headless run stops. The first cause wins."""

    def __init__(self, at_once: Callable[[int], object]) -> None:
        """`at_once` is called with the exit code when a second signal arrives; it ends the process."""
        self.startup = anyio.CancelScope()
        """Around everything; cancelled by a stop that comes before there is a run."""
        self.cause: Cause | None = None
        self.signal: int | None = None
        self._at_once = at_once
        self._stopping = anyio.Event()
        self._run: Run | None = None
        self._agents: Agents | None = None

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
                self.stop(Cause("user"))

    async def expire(self, timeout_s: float) -> None:
        """The run is stopped after `timeout_s`."""
        await anyio.sleep(timeout_s)
        self.stop(Cause("limit", "timeout"))

    def stop(self, cause: Cause) -> None:
        """The tree ends its turns as soon as it can; its mailboxes stay as they are."""
        if self.cause is None:
            self.cause = cause
            self._stopping.set()
            if self._run is None:
                self.startup.cancel()
            else:
                self._cancel(self._run, cause)

    def attach(self, run: Run, agents: Agents) -> None:
        """`run` is what a stop stops from now on; one that came before is made up for."""
        self._run, self._agents = run, agents
        if self.cause is not None:
            self._cancel(run, self.cause)

    def _cancel(self, run: Run, cause: Cause) -> None:
        """The root goes first: it ends those it waits for. The others are ended once it is idle."""
        if run.agent.status == "running":
            run.agent.cancel(cause, keep_mailbox=True)
        else:
            for agent in self.others():
                agent.cancel(cause, keep_mailbox=True)

    def others(self) -> list[Agent]:
        """Agents of the tree, besides its root, that are at work."""
        run, agents = self._run, self._agents
        if run is None or agents is None:
            return []
        return [
            agent
            for agent in agents.list()
            if agent is not run.agent and agent.session.root == run.session_id and agent.status == "running"
        ]

    async def finished(
        self, on_finish: Literal["drain", "stop"], timeout_s: float | None
    ) -> tuple[tuple[str, ...], bool]:
        """The root owes nothing and nobody of its tree works any more, as far as the bounds allow.

        The answer is the ids of agents that were at work when the root was done and had to be stopped or left, and
        whether they were stopped on purpose.
        """
        run = self._run
        assert run is not None
        await self._bounded(run.agent.wait_idle)
        others = self.others()
        if self.cause is None and others and on_finish == "drain":
            with anyio.move_on_after(timeout_s):
                await self._bounded(self._quiet)
            others = self.others()
        left = tuple(agent.id for agent in others)
        for agent in others:
            agent.cancel(self.cause or Cause("user", "on-finish"), keep_mailbox=True)
        with anyio.move_on_after(GRACE_S):
            await self._quiet()
        return left, on_finish == "stop"

    async def _quiet(self) -> None:
        """Nobody of the tree is at work, its root included."""
        run = self._run
        assert run is not None
        while True:
            busy = [run.agent] if run.agent.status == "running" else self.others()
            if not busy:
                return
            if self.cause is not None:
                self._cancel(run, self.cause)
            await busy[0].wait_idle()

    async def _bounded(self, wait: Callable[[], Awaitable[None]]) -> None:
        """`wait` is over, or a stop has had its time."""

        async def bound() -> None:
            await self._stopping.wait()
            await anyio.sleep(GRACE_S)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(bound)
            await wait()
            group.cancel_scope.cancel()
