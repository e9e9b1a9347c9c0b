"""Who is resident, who is on the way, and who waits for either to change. Pure memory; every change wakes its watchers.

A child counts for its parent from before it can run until it is gone, so nobody settles around one that is on its way.
"""

from __future__ import annotations

from collections import Counter

import anyio

from retinue.base.ids import SessionId
from retinue.subagent.resident import Resident

__all__ = ["Arrival", "Roster"]


class Arrival:
    """A child that is being created or loaded. It may turn out not to become resident."""

    __slots__ = ("ancestry", "id", "is_over", "scope")

    def __init__(self, id: SessionId, ancestry: tuple[SessionId, ...]) -> None:
        self.id = id
        self.ancestry = ancestry
        """Everyone above, nearest first."""
        self.scope = anyio.CancelScope()
        """Covers a creation until it is accepted; a child that has accepted work is let through and ended after."""
        self.is_over = anyio.Event()

    @property
    def parent_id(self) -> SessionId:
        """Its direct parent."""
        return self.ancestry[0]


class Roster:
    """The children of one host that have, or are about to have, an open activation here."""

    def __init__(self) -> None:
        self._residents: dict[SessionId, Resident] = {}
        self._arrivals: dict[Arrival, None] = {}
        self._open: Counter[SessionId] = Counter()
        self._changed = anyio.Event()

    @property
    def changed(self) -> anyio.Event:
        """Set at the next change."""
        return self._changed

    def get(self, id: SessionId) -> Resident | None:
        """The resident child of that id."""
        return self._residents.get(id)

    def parent_of(self, id: SessionId) -> SessionId | None:
        """The parent of a child that is resident or on its way; None for anybody else."""
        found = self._residents.get(id) or next((one for one in self._arrivals if one.id == id), None)
        return None if found is None else found.parent_id

    def open_children(self, id: SessionId) -> int:
        """How many children of that agent are resident or on their way."""
        return self._open[id]

    def at_or_below(self, id: SessionId | None) -> tuple[list[Resident], list[Arrival]]:
        """The child itself and everybody whose recorded ancestry holds `id`, parents before children; None = all."""
        residents = [r for r in self._residents.values() if id is None or id == r.id or id in r.ancestry]
        residents.sort(key=lambda resident: len(resident.ancestry))
        return residents, [a for a in self._arrivals if id is None or id == a.id or id in a.ancestry]

    def has_below(self, id: SessionId) -> bool:
        """Somebody below that agent is resident or on its way, whether or not those between are here."""
        return any(id in one.ancestry for one in (*self._residents.values(), *self._arrivals))

    def add(self, resident: Resident) -> None:
        """The child is resident."""
        self._residents[resident.id] = resident
        self._count(resident.parent_id, 1)

    def remove(self, resident: Resident) -> None:
        """The child is not resident any more. Again: nothing."""
        if self._residents.get(resident.id) is resident:
            del self._residents[resident.id]
            self._count(resident.parent_id, -1)

    def expect(self, id: SessionId, ancestry: tuple[SessionId, ...]) -> Arrival:
        """The child is on its way, until `arrived`."""
        arrival = Arrival(id, ancestry)
        self._arrivals[arrival] = None
        self._count(arrival.parent_id, 1)
        return arrival

    def arrived(self, arrival: Arrival) -> None:
        """It is resident now, or will not be. Again: nothing."""
        if arrival in self._arrivals:
            del self._arrivals[arrival]
            arrival.is_over.set()
            self._count(arrival.parent_id, -1)

    async def wait_arrived(self, id: SessionId) -> None:
        """Nobody of that id is on the way."""
        for arrival in [one for one in self._arrivals if one.id == id]:
            await arrival.is_over.wait()

    def _count(self, parent: SessionId, by: int) -> None:
        self._open[parent] += by
        if not self._open[parent]:
            del self._open[parent]
        self.stir(parent)

    def stir(self, id: SessionId | None) -> None:
        """What the standing of that agent depends on may have changed."""
        resident = self._residents.get(id) if id is not None else None
        if resident is not None:
            resident.stir()
        self._changed.set()
        self._changed = anyio.Event()
