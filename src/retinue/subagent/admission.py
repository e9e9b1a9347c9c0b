"""How many children work at once: slots in order of arrival, per process and per parent.

A child holds a slot while it has an open turn and does not itself wait for a child in the foreground: a waiting one
lends its slot, so nesting cannot deadlock. Who finds no slot waits; nobody is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.agent.environment import Attempt, PreStep, StepInput
from retinue.agent.registry import Agents
from retinue.base.chain import Next
from retinue.base.ids import SessionId
from retinue.base.scope import Undo
from retinue.errors import BadInput
from retinue.session.events import Event, TurnEnd
from retinue.session.session import Session

__all__ = ["Admission", "Limits"]


class Limits(Struct, frozen=True, kw_only=True):
    """How many children may have an open turn at the same time."""

    concurrent: int = 1000
    """In this process."""
    concurrent_per_parent: int = 1000

    def check(self) -> None:
        """Return if the limits make sense. Raises: BadInput."""
        if self.concurrent < 1 or self.concurrent_per_parent < 1:
            raise BadInput("limits of concurrent children must be at least 1; set max_depth to 0 to forbid delegation")


class _Waiter(Struct, eq=False):
    child: SessionId
    parent: SessionId
    admitted: anyio.Event


class _Loan(Struct, eq=False):
    parent: SessionId
    blocks: int = 0
    """How many waits share the slot that was lent."""


class Admission:
    """The slots of one host."""

    def __init__(self, limits: Limits) -> None:
        limits.check()
        self._limits = limits
        self._holders: dict[SessionId, SessionId] = {}
        self._per_parent: Counter[SessionId] = Counter()
        self._queue: list[_Waiter] = []
        self._loans: dict[SessionId, _Loan] = {}

    def install(self, agents: Agents) -> Undo:
        """Every later child of the host takes a slot for each of its turns."""
        return agents.on_setup(self._compose)

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._queue)

    def ahead_of(self, parent: SessionId) -> int:
        """How many would be served before another child of `parent`; 0 if it would get a slot at once."""
        return 0 if self._has_room(parent) and not self._queue else len(self._queue) + 1

    async def _compose(self, agent: Agent) -> None:
        parent = agent.session.header.parent_session
        if agent.session.header.origin != "subagent" or parent is None:
            return

        async def admitted(step: StepInput, inner: Next[StepInput, PreStep]) -> PreStep:
            await self.acquire(agent.id, parent)
            return await inner(step)

        async def asked(attempt: Attempt, inner: Next[Attempt, None]) -> None:
            await self.acquire(agent.id, parent)  # a step that another process began was admitted there, not here
            await inner(attempt)

        def ended(_: Session, events: Sequence[Event]) -> None:
            if any(isinstance(event.data, TurnEnd) for event in events):
                self.release(agent.id)

        agent.chains.pre_step.wrap(admitted)
        agent.chains.model_request.wrap(asked)
        agent.session.observe(ended)
        agent.scope.callback(self.release, agent.id)

    def _has_room(self, parent: SessionId) -> bool:
        return (
            len(self._holders) < self._limits.concurrent
            and self._per_parent[parent] < self._limits.concurrent_per_parent
        )

    async def acquire(self, child: SessionId, parent: SessionId) -> None:
        """The child holds a slot, after everybody who asked before and could be served. Holding one, it keeps it.

        Cancelled while waiting: it has left the queue.
        """
        if child in self._holders:
            return
        if not self._queue and self._has_room(parent):
            self._hold(child, parent)
            return
        waiter = _Waiter(child, parent, anyio.Event())
        self._queue.append(waiter)
        try:
            await waiter.admitted.wait()
        except BaseException:
            if waiter in self._queue:
                self._queue.remove(waiter)
            else:
                self.release(child)
            raise

    def _hold(self, child: SessionId, parent: SessionId) -> None:
        self._holders[child] = parent
        self._per_parent[parent] += 1

    def release(self, child: SessionId) -> None:
        """The child holds no slot; whoever waits longest and has room goes on."""
        parent = self._holders.pop(child, None)
        if parent is None:
            return
        self._per_parent[parent] -= 1
        if not self._per_parent[parent]:
            del self._per_parent[parent]
        for waiter in tuple(self._queue):
            if self._has_room(waiter.parent):
                self._queue.remove(waiter)
                self._hold(waiter.child, waiter.parent)
                waiter.admitted.set()

    @asynccontextmanager
    async def lent(self, holder: SessionId) -> AsyncGenerator[None]:
        """While the block runs, the holder's slot is free for others; when its last such block ends, it has one again.

        A holder that waits for several children needs no slot before the last of them has ended. A block that is
        cancelled or fails does not wait for a slot again: what follows is only the end of a turn.
        """
        loan = self._loans.get(holder)
        if loan is None:
            parent = self._holders.get(holder)
            if parent is None:
                yield
                return
            loan = self._loans[holder] = _Loan(parent)
            self.release(holder)
        loan.blocks += 1
        try:
            yield
        finally:
            loan.blocks -= 1
            if not loan.blocks:
                del self._loans[holder]
        if not loan.blocks:
            await self.acquire(holder, loan.parent)
