"""Who is there and what has become durable, for steps that wait for it. It lives as long as the scenario."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import anyio

from retinue.base.ids import SessionId
from retinue.session.events import Event
from retinue.session.folds import descriptor
from retinue.session.session import Session
from retinue.testing.scenario.form import ROOT

__all__ = ["ROOT_ID", "Witness"]

ROOT_ID = SessionId("session-root")
"""The id of the root: what is derived from it is the same in every run."""


class Witness:
    """`observe` is an observer of durable events; hand it those of every session."""

    def __init__(self) -> None:
        self._ids: dict[str, SessionId] = {ROOT: ROOT_ID}
        self._counts: Counter[tuple[SessionId, str]] = Counter()
        self._changed = anyio.Event()

    def observe(self, session: Session, events: Sequence[Event]) -> None:
        """The events count."""
        made = descriptor(session.header, session.events)
        if made is not None and made.label is not None:
            self._ids.setdefault(made.label, session.id)
        for event in events:
            if event.seq >= (session.header.seed_length or 0):
                self._counts[session.id, event.type] += 1
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_id(self, label: str) -> SessionId:
        """The session with that label; the oldest, if there are several."""
        while label not in self._ids:
            await self._changed.wait()
        return self._ids[label]

    async def wait_event(self, label: str, type_name: str, count: int) -> None:
        """The session's log durably holds so many events of that type, since the beginning of the scenario."""
        id = await self.wait_id(label)
        while self._counts[id, type_name] < count:
            await self._changed.wait()
