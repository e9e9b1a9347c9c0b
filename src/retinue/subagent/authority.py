"""Who may start, message and interrupt whom, and where nothing may begin any more.

It only decides: whoever acts asks first, and again after each wait.
"""

from __future__ import annotations

from weakref import WeakSet

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.errors import (
    ActivationClosing,
    Draining,
    NotResumable,
    SessionNotFound,
    StoreFailure,
    Unauthorized,
)
from retinue.host.host import Host
from retinue.session.events import DESCRIPTOR_VERSION, Descriptor
from retinue.session.folds import descriptor
from retinue.subagent.resident import Resident
from retinue.subagent.roster import Roster
from retinue.subagent.stopping import Stops

__all__ = ["Authority"]


class Authority:
    """What the agents of one host may do to their children."""

    def __init__(self, host: Host, roster: Roster, stops: Stops) -> None:
        self._agents = host.agents
        self._sessions = host.sessions
        self._roster = roster
        self._stops = stops
        self._draining: WeakSet[Agent] = WeakSet()
        """Agents below which nothing starts any more, for as long as they live."""
        self._is_closed = False

    def ancestry(self, agent: Agent) -> tuple[SessionId, ...]:
        """The agent and everyone above it, nearest first; as far as they were recorded, or still live."""
        ids: list[SessionId] = []
        at: Agent | None = agent
        while at is not None and at.id not in ids:
            ids.append(at.id)
            found = self._roster.get(at.id)
            if found is not None:
                return (*ids, *found.ancestry)
            parent = at.session.header.parent_session
            at = self._agents.get(parent) if parent is not None else None
            if at is None and parent is not None:
                ids.append(parent)
        return tuple(ids)

    # Where nothing may begin

    def forbid_below(self, agent: Agent) -> None:
        """Nothing starts below the agent any more, as long as it lives."""
        self._draining.add(agent)

    def forbid_all(self) -> None:
        """Nothing starts anywhere any more."""
        self._is_closed = True

    def is_draining(self, agent: Agent) -> bool:
        """Nothing starts below the agent any more, because of itself or of somebody above it."""
        if self._is_closed or agent in self._draining:
            return True
        ancestry = self.ancestry(agent)
        if self._stops.cover(ancestry):
            return True
        lives = (self._agents.get(id) for id in ancestry[1:])
        return any(live is not None and live in self._draining for live in lives)

    def check_open(self, agent: Agent, what: str) -> None:
        """Return if something may still begin in the agent's part of the tree. Raises: Draining, ActivationClosing."""
        if self.is_draining(agent):
            raise Draining(f"the tree of {agent.id!r} is being drained; {what}")
        if agent.is_closing:
            raise ActivationClosing(f"agent {agent.id!r} is being disposed; {what}")

    # Who may act

    def check_live(self, agent: Agent) -> None:
        """Return if the agent is the registered one of its id. Raises: Unauthorized."""
        if not self._agents.is_live(agent):
            raise Unauthorized(f"agent {agent.id!r} is not the registered one; only a live agent may do this")

    def check_admission(self, parent: Agent) -> None:
        """Return if `parent` may have something begin below it. Raises: Unauthorized, Draining, ActivationClosing."""
        self.check_live(parent)
        self.check_open(parent, "nothing new starts below it")

    async def check_follow_up(self, parent: Agent, id: SessionId) -> None:
        """Return if `parent` may send to the child `id` and the child can take it.

        Raises: Unauthorized, NotResumable, Draining, ActivationClosing.
        """
        self.check_admission(parent)
        resident = self._roster.get(id)
        owner, made = (
            (resident.parent_id, resident.descriptor) if resident is not None else await self._stored_child(id)
        )
        if owner != parent.id:
            of = f"belongs to {owner!r}" if owner is not None else "is nobody's child"
            raise Unauthorized(f"agent {id!r} {of}; only its direct parent may message it")
        if made is None:
            raise NotResumable(f"agent {id!r} is none that can be messaged; do not retry, start a new one instead")
        if made.version != DESCRIPTOR_VERSION:
            raise NotResumable(
                f"agent {id!r} was made by another version of this program, which this one cannot resume; do not "
                "retry, start a new one instead"
            )
        if made.mode != "continuable":
            raise NotResumable(
                f"agent {id!r} was a single run and takes no messages; do not retry, start a new one instead"
            )

    async def _stored_child(self, id: SessionId) -> tuple[SessionId | None, Descriptor | None]:
        """Its parent and its descriptor, as they are stored. Nothing is loaded. Raises: NotResumable."""
        try:
            stored = await self._sessions.store.read(id)
        except SessionNotFound:
            raise NotResumable(f"there is no agent {id!r}; list_agents shows those that can be messaged") from None
        except StoreFailure as error:
            raise NotResumable(f"agent {id!r} cannot be read, so it cannot be resumed: {error}") from error
        return stored.header.parent_session, descriptor(stored.header, stored.events)

    def interruptible(self, id: SessionId, caller: Agent | None) -> Resident | None:
        """The child, if it is at work here. `caller` is a live ancestor, or None for the user. Raises: Unauthorized."""
        if caller is not None and (not self._agents.is_live(caller) or caller.id == id):
            raise Unauthorized(f"agent {caller.id!r} may not interrupt {id!r}: only a live ancestor may")
        resident = self._roster.get(id)
        if resident is None:
            return None
        if caller is not None and caller.id not in resident.ancestry:
            raise Unauthorized(f"agent {id!r} was not started by {caller.id!r} or its descendants")
        return resident if resident.obstacle is None and not resident.agent.is_closing else None
