"""What came of a performance, read from the disk: every session with its log, in an order that is always the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from retinue.base.clock import Clock
from retinue.base.ids import SessionId, derived_id
from retinue.model.content import AssistantMessage
from retinue.session.events import (
    AssistantReply,
    Event,
    RequestHeader,
    RequestHeaderChange,
    SessionHeader,
    WorkflowAgentStart,
)
from retinue.session.folds import descriptor
from retinue.store.sqlite import SqliteStore
from retinue.testing.host import all_sessions, audit
from retinue.testing.scenario.form import ROOT
from retinue.testing.scenario.names import session_name
from retinue.testing.scenario.witness import ROOT_ID

__all__ = ["TakenSession", "take"]


@dataclass(frozen=True, slots=True)
class TakenSession:
    """One session as it was when everything was over."""

    number: int
    header: SessionHeader
    events: Sequence[Event]

    @property
    def label(self) -> str:
        """What the session is called in scripts and steps."""
        made = descriptor(self.header, self.events)
        return ROOT if not self.number else (made.label if made is not None else None) or ""

    @property
    def who(self) -> str:
        """The session as a reader of a failure finds it."""
        return f"{session_name(self.number)} ({self.label})"

    @property
    def own(self) -> Sequence[Event]:
        """Its events without those that it was created with."""
        return self.events[self.header.seed_length or 0 :]

    @property
    def headers(self) -> list[RequestHeader]:
        """The request headers that its own requests had, one for each time that they changed."""
        found: list[RequestHeader] = []
        for event in self.own:
            if isinstance(event.data, RequestHeaderChange) and (not found or found[-1] != event.data.header):
                found.append(event.data.header)
        return found


async def take(home: Path, clock: Clock) -> tuple[list[TakenSession], list[str]]:
    """The sessions of the home, the root first, then its children in the order of the calls that made them, then
    theirs; and what in their logs breaks the rules of logs."""
    store = SqliteStore.open(home / "retinue.db", clock, read_only=True)
    try:
        stored = {summary.header.id: await store.read(summary.header.id) for summary in await all_sessions(store)}
        try:
            await audit(store)
            broken: list[str] = []
        except AssertionError as error:
            broken = [str(error)]
    finally:
        await store.aclose()
    order = [ROOT_ID] if ROOT_ID in stored else []
    for id in order:
        children = [other for other in stored if stored[other].header.parent_session == id]
        calls = _calls(id, stored[id].events[stored[id].header.seed_length or 0 :])
        order += sorted(children, key=lambda child: (calls.get(child, len(calls)), child))
    return [TakenSession(n, stored[id].header, stored[id].events) for n, id in enumerate(order)], broken


def _calls(id: SessionId, events: Sequence[Event]) -> dict[SessionId, int]:
    """The ids that children of these calls have, with the order of the calls, and of the agents that they log."""
    made: list[str] = []
    for event in events:
        match event.data:
            case AssistantReply(message=message):
                made += [derived_id("agent", id, event.seq, index) for index in _indexes(message)]
            case WorkflowAgentStart(id=agent):
                made.append(agent)
            case _:
                pass
    return {SessionId(child): place for place, child in enumerate(dict.fromkeys(made))}


def _indexes(message: AssistantMessage) -> range:
    return range(len(message.calls))
