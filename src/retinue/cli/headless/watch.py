"""Who works on what, as a fold of the durable events of one tree: what progress displays show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from retinue.base.ids import SessionId
from retinue.model.content import Usage
from retinue.session.events import (
    AssistantReply,
    Descriptor,
    Event,
    StepStart,
    ToolReturned,
    TurnEnd,
    TurnStart,
)
from retinue.session.session import Session
from retinue.subagent.outcome import Ending, turn_ending

__all__ = ["Line", "Watch"]


@dataclass(slots=True)
class Line:
    """One agent of the tree."""

    id: SessionId
    parent: SessionId | None
    depth: int
    label: str = ""
    state: Ending | None = None
    """How its last turn ended; None while one is open, or before the first."""
    is_working: bool = False
    is_asking: bool = False
    """A model request is under way."""
    calls: dict[int, str] = field(default_factory=dict[int, str])
    """Names of the calls of this step that have no result, by index."""
    usage: Usage = Usage()
    started_ms: int = 0
    """Start of its last turn, epoch milliseconds."""
    ended_ms: int = 0
    """End of its last turn; 0 while it is open."""


class Watch:
    """The agents of one tree. `observe` is an observer of durable events; hand it those of every session."""

    def __init__(self) -> None:
        self.root: SessionId | None = None
        self.lines: dict[SessionId, Line] = {}
        self._listeners: tuple[Callable[[Line, TurnStart | TurnEnd], None], ...] = ()

    def on_turn(self, listener: Callable[[Line, TurnStart | TurnEnd], None]) -> None:
        """`listener` hears of the start and the end of every later turn, after it was accounted for."""
        self._listeners = (*self._listeners, listener)

    def observe(self, session: Session, events: Sequence[Event]) -> None:
        """The events are accounted for, if they belong to the tree."""
        if session.root != self.root:
            return
        header = session.header
        line = self.lines.get(header.id)
        if line is None:
            line = self.lines[header.id] = Line(header.id, header.parent_session, header.delegation_depth)
        for event in events:
            if event.seq >= (header.seed_length or 0):
                self._apply(line, event)

    def _apply(self, line: Line, event: Event) -> None:
        match event.data:
            case Descriptor(label=label):
                line.label = line.label or label or ""
            case StepStart():
                line.is_working = line.is_asking = True
            case AssistantReply(message=message, usage=usage):
                line.is_asking = False
                line.calls = {index: call.name for index, call in enumerate(message.calls)}
                line.usage = line.usage + (usage or Usage())
            case ToolReturned(index=index):
                line.calls.pop(index, None)
            case TurnStart() as start:
                line.is_working, line.state = True, None
                line.started_ms, line.ended_ms = event.time, 0
                self._tell(line, start)
            case TurnEnd() as end:
                line.is_working = line.is_asking = False
                line.state, line.ended_ms = turn_ending(end), event.time
                line.calls = {}
                self._tell(line, end)
            case _:
                pass

    def _tell(self, line: Line, what: TurnStart | TurnEnd) -> None:
        for listener in self._listeners:
            listener(line, what)
