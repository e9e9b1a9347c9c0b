"""What a whole tree of sessions has used and become, kept up to date from the logs as they grow."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from retinue.base.ids import SessionId
from retinue.base.json import JSONObject
from retinue.errors import CorruptSession
from retinue.model.content import Usage
from retinue.session.events import (
    ActivationEnd,
    ActivationStart,
    AssistantReply,
    Descriptor,
    Event,
    SessionHeader,
    TurnStart,
)
from retinue.session.folds import descriptor, total_usage
from retinue.session.session import Session
from retinue.session.store import SessionStore
from retinue.subagent.outcome import ENDINGS, Ending, outcome

__all__ = ["AgentLine", "TreeAccount", "activation_ending", "known_ending", "usage_object"]


def usage_object(usage: Usage) -> JSONObject:
    """Usage as the command line shows it."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "cost_usd": usage.cost_usd,
        "requests": usage.requests,
    }


def known_ending(name: str) -> Ending:
    """An ending as a log names it; one that is not known counts as a failure."""
    return name if name in ENDINGS else "error"


def activation_ending(events: Sequence[Event], first: int = 0) -> Ending | None:
    """How the newest activation from seq `first` on ended; None while it is open, or if there is none."""
    for event in reversed(events):
        if event.seq < first or isinstance(event.data, ActivationStart):
            break
        if isinstance(event.data, ActivationEnd):
            return known_ending(event.data.outcome)
    return None


class AgentLine(Struct):
    """One agent of a tree, below its root."""

    id: SessionId
    parent_id: SessionId | None
    label: str | None = None
    mode: str | None = None
    outcome: Ending | None = None
    """How its latest work ended; None while it works, or waits for what it started."""
    usage: Usage = Usage()


class TreeAccount:
    """The agents of one tree. `observe` is an observer of appended events; hand it those of every session."""

    def __init__(self, root: SessionId) -> None:
        self.root = root
        self._lines: dict[SessionId, AgentLine] = {}

    async def load(self, store: SessionStore) -> None:
        """What is stored already is accounted for. Call it before anything of the tree runs."""
        todo = [self.root]
        while todo:
            parent = todo.pop()
            for child in await store.children(parent):
                if child.header.origin != "subagent":
                    continue
                todo.append(child.header.id)
                line = self._line(child.header)
                try:
                    stored = await store.read(child.header.id)
                except CorruptSession:
                    line.outcome = "error"  # one that cannot be read keeps nobody else from going on
                    continue
                self._describe(line, descriptor(stored.header, stored.events))
                first = stored.header.seed_length or 0
                line.usage = total_usage(stored.events, first)
                line.outcome = _ending(line, stored.events, first, is_open=child.open_turn is not None)

    def observe(self, session: Session, events: Sequence[Event]) -> None:
        """The events are accounted for, if they belong to the tree below the root."""
        if session.root != self.root or session.id == self.root:
            return
        line = self._line(session.header)
        for event in events:
            if event.seq < (session.header.seed_length or 0):
                continue
            match event.data:
                case AssistantReply(usage=Usage() as used):
                    line.usage = line.usage + used
                case Descriptor() as made if line.mode is None:
                    self._describe(line, made)
                case _:
                    pass
        turns = session.turns
        is_open = turns.open is not None or turns.activation is not None
        line.outcome = _ending(line, session.events, session.header.seed_length or 0, is_open=is_open)

    def _line(self, header: SessionHeader) -> AgentLine:
        line = self._lines.get(header.id)
        if line is None:
            line = self._lines[header.id] = AgentLine(header.id, header.parent_session)
        return line

    def _describe(self, line: AgentLine, made: Descriptor | None) -> None:
        if made is not None:
            line.label, line.mode = made.label, made.mode

    @property
    def agents(self) -> tuple[AgentLine, ...]:
        """All agents below the root, in the order in which they were seen."""
        return tuple(self._lines.values())

    @property
    def usage(self) -> Usage:
        """What they used together."""
        total = Usage()
        for line in self._lines.values():
            total = total + line.usage
        return total


def _ending(line: AgentLine, events: Sequence[Event], first: int, *, is_open: bool) -> Ending | None:
    """A continuable child has ended when its activation has, and any other when a turn of its own has."""
    if is_open:
        return None
    if line.mode == "continuable":
        return activation_ending(events, first)
    has_begun = any(type(events[seq].data) is TurnStart for seq in range(first, len(events)))
    return outcome(events, first=first).ending if has_begun else None
