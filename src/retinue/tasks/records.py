"""Who owns which task, and who may name it. Pure memory: nothing here starts, ends or writes anything."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.agent.agent import Agent
from retinue.agent.registry import Agents
from retinue.base.ids import SessionId
from retinue.errors import NotFound, Unauthorized
from retinue.tasks.entry import Bucket, Entry
from retinue.tasks.history import ended

__all__ = ["Records"]


class Records:
    """All tasks of a host, by exact owner."""

    __slots__ = ("_agents", "_owned", "unowned")

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._owned: dict[Agent, Bucket] = {}
        self.unowned = Bucket(None)
        """Tasks without an owner share one bucket."""

    def __iter__(self) -> Iterator[Bucket]:
        return iter((self.unowned, *self._owned.values()))

    def get(self, owner: Agent | None) -> Bucket | None:
        """The bucket of that very agent, or the one without an owner."""
        return self.unowned if owner is None else self._owned.get(owner)

    def add(self, owner: Agent) -> Bucket:
        """A new bucket, which continues the numbers of the owner's log."""
        bucket = self._owned[owner] = Bucket(owner)
        return bucket

    def remove(self, bucket: Bucket) -> bool:
        """The bucket and its tasks are forgotten; True if it had any."""
        had_any = bool(bucket.entries)
        bucket.entries.clear()
        if bucket.owner is not None and self._owned.get(bucket.owner) is bucket:
            del self._owned[bucket.owner]
        return had_any

    def next_number(self, bucket: Bucket, kind: str) -> int:
        """One more than any number of that kind which whoever can name the new task can name as well."""
        known = (self.unowned, bucket) if bucket.owner is not None else tuple(self)
        return 1 + max(each.numbers.get(kind, 0) for each in known)

    def visible(self, caller: SessionId | None) -> list[Entry]:
        """The caller's tasks and those without an owner, in the order in which they began."""
        own = self._of(caller)
        entries = [*self.unowned.entries.values(), *(own.entries.values() if own is not None else ())]
        return sorted(entries, key=lambda entry: entry.order)

    def find(self, id: str, caller: SessionId | None) -> Entry:
        """The task. Raises: Unauthorized if only another session has it; NotFound, which knows of tasks long over."""
        own = self._of(caller)
        entry = (own.entries.get(id) if own is not None else None) or self.unowned.entries.get(id)
        if entry is not None:
            return entry
        agent = None if caller is None else self._agents.get(caller)
        past = None if agent is None else ended(agent.session.events, id)
        if past is not None:
            how = past.status if past.detail is None else f"{past.status}, {past.detail}"
            raise NotFound(f"task {id!r} is over ({how}) and its output is not kept any more")
        if any(id in bucket.entries for bucket in self._owned.values()):
            raise Unauthorized(f"task {id!r} belongs to another agent; only its owner may read, wait for or kill it")
        raise NotFound(f"there is no background task {id!r}")

    def _of(self, caller: SessionId | None) -> Bucket | None:
        agent = None if caller is None else self._agents.get(caller)
        return None if agent is None else self._owned.get(agent)
