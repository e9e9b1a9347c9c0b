"""Stopping an agent with everything below it, on somebody's order from outside the tree.

Unlike a drain it withdraws what users and parents have sent, and whoever was stopped may be sent to and started again
once it is over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Protocol

from retinue.agent.agent import Agent
from retinue.agent.signals import StopAsked
from retinue.base.ids import SessionId
from retinue.subagent.recovery import Recovery
from retinue.subagent.roster import Roster
from retinue.subagent.supervisor import Supervisor

__all__ = ["Stops"]


class _Drain(Protocol):
    def __call__(self, id: SessionId | None, *, inclusive: bool) -> Awaitable[None]: ...


class Stops:
    """The stops of one host that are not over."""

    def __init__(self, drain: _Drain) -> None:
        self._drain = drain
        self._open: set[SessionId] = set()

    def cover(self, ids: Iterable[SessionId]) -> bool:
        """One of these agents is being stopped."""
        return not self._open.isdisjoint(ids)

    def obey(self, event: StopAsked, roster: Roster, supervisor: Supervisor, recovery: Recovery) -> None:
        """Everybody below the agent ends, and if it is a child, its own activation. Nothing starts there meanwhile."""
        agent = event.agent
        self._open.add(agent.id)
        is_child = roster.get(agent.id) is not None
        supervisor.release(agent.id, inclusive=is_child)
        event.waits.append(partial(self._over, agent, recovery, is_child))

    async def _over(self, agent: Agent, recovery: Recovery, is_child: bool) -> None:
        """Those who owed work and were not here have ended too. Raises: ActivationTeardownFailed, StoreFailure."""
        try:
            for _ in range(2):  # a single run that only a call of those who have ended waited for ends as well
                await recovery.bring_owing(agent.session.root, agent.id)
                await self._drain(agent.id, inclusive=is_child)
        finally:
            self._open.discard(agent.id)
