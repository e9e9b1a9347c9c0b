"""One run of a script: its process on one side, its children on the other, and the limits between them.

The process is believed nothing but its messages, and those only within the limits. Whatever it does, the run comes to
an end: it returns, it fails, or it is cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from retinue.base.ids import SessionId
from retinue.errors import StoreFailure
from retinue.plugins.workflow.children import Children, Impossible
from retinue.plugins.workflow.process import (
    Answer,
    AskAgent,
    Done,
    Failed,
    Log,
    Lost,
    Mask,
    Order,
    Phase,
    Ready,
    Wait,
    Worker,
    open_worker,
)

__all__ = ["Limits", "ScriptRun", "Stopped"]

_MAX_LINES = 1_000
_LINE_CHARS = 2_000


class Limits(Struct, frozen=True, kw_only=True):
    """What one run may use."""

    agents: int
    start_s: float
    synchronous_s: float
    grace_s: float


class Stopped(Struct, frozen=True):
    """The script did not come to its end."""

    reason: str


@dataclass(slots=True, kw_only=True)
class ScriptRun:
    """Made for one call, performed once."""

    children: Children
    limits: Limits
    mask: Mask
    """Of what the script says: it can put together what it was never shown whole."""
    lines: list[str] = field(default_factory=list[str])
    """What the script said about itself."""
    _phase: str | None = None
    _asked: int = 0
    _answered: int = 0
    _waits: bool = False
    _stopped: str | None = None
    _outage: StoreFailure | None = None
    _patience: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def perform(self, argv: Sequence[str], order: Order) -> Done | Stopped:
        """How the script ended. Neither its process nor a child is at work any more.

        Cancelling kills the process, stops all children at once, and waits for them. Raises: StoreFailure.
        """
        ended: Done | Stopped = Stopped("it was cut off")
        async with anyio.create_task_group() as group:
            ended = await self._talk(argv, order, group)
            group.cancel_scope.cancel()  # nobody waits any more for a child that is still at work
        if self._outage is not None:
            raise self._outage
        return ended

    async def _talk(self, argv: Sequence[str], order: Order, group: TaskGroup) -> Done | Stopped:
        why = "its process did not start"
        try:
            async with open_worker(argv, grace_s=self.limits.grace_s, mask=self.mask) as worker:
                with self._patience:
                    self._extend(self.limits.start_s)
                    await worker.send(order)
                    match await worker.receive():
                        case Ready():
                            pass
                        case Failed() as refused:
                            return _failure(refused)
                        case _:
                            return Stopped("its process did not say that it is ready")
                    why = f"it ran for {self.limits.synchronous_s:g} s without calling a hook or waiting for one"
                    self._extend(self.limits.synchronous_s)
                    return await self._converse(worker, group)
        except Lost as error:
            why = f"its process was lost: {error}"
        return Stopped(self._stopped or why)

    async def _converse(self, worker: Worker, group: TaskGroup) -> Done | Stopped:
        """Hooks are answered until the script has ended, or breaks a limit."""
        while True:
            message = await worker.receive()
            if not isinstance(message, Wait):
                self._waits = False
                self._extend(self.limits.synchronous_s)
            match message:
                case AskAgent():
                    self._asked += 1
                    if self._asked > self.limits.agents:
                        return Stopped(f"it asked for more than {self.limits.agents} agents")
                    group.start_soon(self._ask, worker, message, self.children.identify(message), self._phase)
                case Phase(name=name):
                    self._phase = name[:_LINE_CHARS]
                    self.lines.append(f"== {self._phase}")
                case Log(text=text):
                    self.lines.append(text[:_LINE_CHARS])
                case Wait(seen=seen):
                    if self._waits or self._asked == self._answered == seen:
                        return Stopped("it waits for nothing")
                    if seen == self._answered:
                        self._waits = True
                        self._patience.deadline = float("inf")
                case Done():
                    return message
                case Failed():
                    return _failure(message)
                case Ready():
                    return Stopped("its process began twice")
            if len(self.lines) > _MAX_LINES:
                return Stopped(f"it logged more than {_MAX_LINES} lines")

    async def _ask(self, worker: Worker, ask: AskAgent, id: SessionId, phase: str | None) -> None:
        try:
            value = await self.children.value(ask, id, phase)
        except Impossible as error:
            self._stop(str(error))
            return
        except StoreFailure as error:
            self._outage = error
            self._stop("the store failed")
            return
        self._answered += 1
        self._waits = False
        self._extend(self.limits.synchronous_s)
        with suppress(Lost):  # whoever reads from it says so
            await worker.send(Answer(ask.id, value))

    def _stop(self, reason: str) -> None:
        self._stopped = self._stopped or reason
        self._patience.cancel()

    def _extend(self, seconds: float) -> None:
        self._patience.deadline = anyio.current_time() + seconds


def _failure(said: Failed) -> Stopped:
    return Stopped(said.message if said.line is None else f"line {said.line}: {said.message}")
