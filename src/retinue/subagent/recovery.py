"""Brings stored children back: those that owe work when their tree is resumed, and those to whom others have sent."""

from __future__ import annotations

import logging
from functools import partial

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.errors import RetinueError
from retinue.host.host import Host
from retinue.session.rows import Delivery
from retinue.subagent.dead_runs import close_dead_run, find_dead_runs
from retinue.subagent.roster import Arrival, Roster
from retinue.subagent.supervisor import Supervisor

__all__ = ["Recovery"]

_log = logging.getLogger("retinue")


class Recovery:
    """The way from the store into the roster of one host."""

    def __init__(self, host: Host, roster: Roster, supervisor: Supervisor) -> None:
        self._host = host
        self._roster = roster
        self._supervisor = supervisor

    async def recover(self, root: Agent) -> None:
        """Every continuable child of the tree that owes work is resident again, parents before children.

        A child that cannot be read or built keeps nobody else from coming back. One-shot children that nobody waits
        for any more are closed, and what is below them is taken down as it is when such a child is disposed.
        """
        for arrival in await self.bring_owing(root.session.root, root.id):
            await arrival.is_over.wait()
            if self._supervisor.dead_runs.intersection(arrival.ancestry):
                while self._roster.parent_of(arrival.id) is not None:
                    await self._roster.changed.wait()

    async def bring_owing(self, root: SessionId, top: SessionId, *, inclusive: bool = False) -> list[Arrival]:
        """Those below `top` that owe work and are not here are on their way, all at once; `inclusive`: and `top`.

        One-shot children among them that nobody waits for are closed instead.
        """
        owing = await self._host.sessions.store.owing(root)
        above = {id: await self.ancestry(id) for id in ((top, *owing) if inclusive else owing)}
        wanted = {id: up for id, up in above.items() if top in up or (inclusive and id == top)}
        dead = await find_dead_runs(self._host, wanted)
        self._supervisor.dead_runs |= dead
        arrivals = [
            self._supervisor.arrive(id, wanted[id])
            for id in sorted(wanted, key=lambda id: len(wanted[id]))
            if wanted[id] and id not in dead and self._is_away(id)
        ]
        for id in wanted:
            if id in dead:
                await close_dead_run(self._host, id)
        return arrivals

    def _is_away(self, id: SessionId) -> bool:
        return self._roster.parent_of(id) is None and self._host.agents.get(id) is None

    async def ancestry(self, id: SessionId) -> tuple[SessionId, ...]:
        """Everyone above a stored session, nearest first."""
        ids: list[SessionId] = []
        at: SessionId | None = id
        while at is not None and at not in ids:
            ids.append(at)
            summary = await self._host.sessions.store.summary(at)
            at = summary.header.parent_session if summary is not None else None
        return tuple(ids[1:])

    def arrived(self, delivery: Delivery) -> None:
        """Somebody else sent to a session that is not loaded: a child comes back, if its tree is here and stays."""
        self._host.start(partial(self._fetch, delivery.session_id))

    async def _fetch(self, id: SessionId) -> None:
        try:
            ancestry = await self.ancestry(id)
        except RetinueError as error:
            _log.warning("session %s reads what it was sent when its tree is resumed: %s", id, error)
            return
        if ancestry:
            self._supervisor.wake(id, ancestry)
