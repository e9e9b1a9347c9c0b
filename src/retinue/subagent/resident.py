"""A resident child: the memory that goes with one open activation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.base.ids import MessageId, SessionId, derived_id
from retinue.session.events import Descriptor, Event
from retinue.subagent.outcome import Outcome, accounting_end_seq

__all__ = ["Accepted", "Keyed", "Resident"]


class Accepted(Struct, frozen=True, kw_only=True):
    """The receipt of a start: both ids are durable."""

    child_id: SessionId
    message_id: MessageId


class Resident:
    """One open activation and the agent that drives it; the agent may be built again while the activation goes on."""

    agent: Agent

    def __init__(self, *, id: SessionId, ancestry: tuple[SessionId, ...], descriptor: Descriptor) -> None:
        self.id = id
        self.ancestry = ancestry
        """Everyone above, nearest first, as recorded when it became resident."""
        self.descriptor = descriptor
        self.epoch = 0
        self.changed = anyio.Event()
        self.outcome: Outcome | None = None
        """Set once the activation is settled."""
        self.is_unsettled = False
        """It could not be settled in this process; recovery will."""
        self.is_released = False
        """It shall end: its children first, then itself, whatever is pending."""
        self.is_closing = False
        """Its own supervisor takes its agent down, to settle it or to build it again."""
        self.obstacle: Exception | None = None
        """Why it cannot be built, if it cannot."""
        self.failures: list[Exception] = []
        """What failed when it and released children of its own were taken down."""
        self.dropped_at = -1
        """Length of the log when accepted work was last withdrawn unrun, or the child was stopped."""
        self._refusals = 0
        self._refused_at = -1

    @property
    def parent_id(self) -> SessionId:
        """Its direct parent."""
        return self.ancestry[0]

    @property
    def run_id(self) -> str:
        """The same for the same activation, also after a crash."""
        return derived_id("run", self.id, self.epoch)

    @property
    def is_over(self) -> bool:
        """Nobody drives it any more."""
        return self.outcome is not None or self.is_unsettled

    def stir(self) -> None:
        """Something that its standing depends on may have changed."""
        self.changed.set()
        self.changed = anyio.Event()

    def dropped_after(self, events: Sequence[Event]) -> bool:
        """Accepted work was withdrawn unrun after the last turn that accounts for work. Source: behaviour IN-44."""
        return self.dropped_at > accounting_end_seq(events)

    def refused(self, length: int) -> int:
        """Its settlement was refused while `length` events were stored; how often, since the log last grew."""
        self._refusals = self._refusals + 1 if length == self._refused_at else 1
        self._refused_at = length
        return self._refusals


class Keyed:
    """One lock per key, forgotten when nobody holds or wants it."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[anyio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncGenerator[None]:
        """The key is held by the caller alone. A caller that fails or is cancelled does not spoil it for the next."""
        lock, users = self._locks.get(key, (anyio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)
