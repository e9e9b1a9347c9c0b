"""The SQLite store of a scenario, with reads that a test delays or spoils."""

from __future__ import annotations

from pathlib import Path

from retinue.base.clock import Clock
from retinue.base.ids import SessionId
from retinue.session.store import SessionSummary, StoredSession
from retinue.store.sqlite import SqliteStore
from retinue.testing.faults import FaultyStore
from retinue.testing.gate import Gate

__all__ = ["WatchedStore", "home_file"]


def home_file(folder: Path) -> Path:
    return folder / "home.db"


class WatchedStore(FaultyStore):
    """Counts reads, lets them wait at a gate, and spoils those of chosen sessions."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(SqliteStore.open(home_file(folder), clock))
        self.gate: Gate | None = None
        """Where reads of whole sessions wait."""
        self.spoilt: dict[SessionId, Exception] = {}
        self.changed: dict[SessionId, StoredSession] = {}
        """What a read of these gives instead."""
        self.enumeration: Exception | None = None
        self.reading = 0
        self.most_at_once = 0

    async def read(self, session_id: SessionId) -> StoredSession:
        """See SessionStore."""
        self.reading += 1
        self.most_at_once = max(self.most_at_once, self.reading)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if session_id in self.spoilt:
                raise self.spoilt[session_id]
            return self.changed.get(session_id) or await super().read(session_id)
        finally:
            self.reading -= 1

    async def children(self, parent: SessionId) -> list[SessionSummary]:
        """See SessionStore."""
        if self.enumeration is not None:
            raise self.enumeration
        return await super().children(parent)
