"""Who works on what, as a fold of the durable events of one tree, and what goes wrong: what progress displays show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from retinue.agent.signals import ChunksWithdrawn
from retinue.base.ids import SessionId
from retinue.compose.tree import known_ending
from retinue.errors import error_record
from retinue.model.content import Usage, UserMessage
from retinue.session.events import (
    ActivationEnd,
    ActivationStart,
    ApprovalAsked,
    ApprovalDecided,
    AssistantReply,
    Descriptor,
    Event,
    StepStart,
    ToolReturned,
    TurnEnd,
    TurnResumed,
    TurnStart,
)
from retinue.session.folds import descriptor
from retinue.session.session import Session
from retinue.session.title import brief_title, opening
from retinue.subagent.lifecycle import ExternalCall
from retinue.subagent.outcome import Ending, turn_ending

__all__ = ["Line", "Watch"]


@dataclass(slots=True)
class Line:
    """One agent of the tree."""

    id: SessionId
    parent: SessionId | None
    depth: int
    label: str = ""
    is_continuable: bool = False
    """Its work ends with its activation, not with a turn."""
    is_started: bool = False
    """It has begun work that has not ended."""
    state: Ending | None = None
    """How its last work ended; None while it goes on, or before the first."""
    is_working: bool = False
    is_asking: bool = False
    """A model request is under way."""
    calls: dict[int, str] = field(default_factory=dict[int, str])
    """Names of the calls of this step that have no result, by index."""
    held: set[int] = field(default_factory=set[int])
    """Those of them that wait for somebody's word."""
    outside: dict[str, str] = field(default_factory=dict[str, str])
    """Calls of its own that a program makes which works as this agent, as it names them, by its ids."""
    trouble: str = ""
    """Why the request under way had to be made again."""
    usage: Usage = Usage()
    started_ms: int = 0
    """Start of its last work, epoch milliseconds."""
    ended_ms: int = 0
    """End of its last work; 0 while it goes on."""


class Watch:
    """The agents of one tree. `observe` is an observer of durable events; hand it those of every session."""

    def __init__(self) -> None:
        self.root: SessionId | None = None
        self.lines: dict[SessionId, Line] = {}
        self._listeners: tuple[Callable[[Line], None], ...] = ()
        self._noters: tuple[Callable[[Line, str], None], ...] = ()

    def on_change(self, listener: Callable[[Line], None]) -> None:
        """`listener` hears of the start (no `state`) and the end of each agent's later work, once accounted for."""
        self._listeners = (*self._listeners, listener)

    def on_note(self, listener: Callable[[Line, str], None]) -> None:
        """`listener` hears what goes wrong with an agent that goes on all the same."""
        self._noters = (*self._noters, listener)

    def withdrawn(self, signal: ChunksWithdrawn) -> None:
        """A request has failed. If it is made again, that is shown until it is answered, and noted the first time."""
        line = self.lines.get(signal.agent.id)
        if line is None or signal.delay_s is None:
            return
        line.trouble = error_record(signal.error)[1]
        if signal.attempt == 1:
            self._note(line, f"the request failed and is made again: {line.trouble}")

    def external(self, signal: ExternalCall) -> None:
        """A program that works as one of the agents has got on with a call of its own."""
        line = self.lines.get(signal.agent.id)
        if line is None:
            return
        if signal.has_ended:
            line.outside.pop(signal.id, None)
        else:
            line.outside[signal.id] = signal.title

    def observe(self, session: Session, events: Sequence[Event]) -> None:
        """The events are accounted for, if they belong to the tree."""
        if session.root != self.root:
            return
        header = session.header
        line = self.lines.get(header.id)
        if line is None:
            line = self.lines[header.id] = Line(header.id, header.parent_session, header.delegation_depth)
            made = descriptor(header, session.events)
            if made is not None:  # also of a child that this process found stored
                line.label, line.is_continuable = made.label or "", made.mode == "continuable"
        for event in events:
            if event.seq >= (header.seed_length or 0):
                self._apply(line, event)

    def _apply(self, line: Line, event: Event) -> None:
        match event.data:
            case Descriptor(label=label, mode=mode):
                line.label = line.label or label or ""
                line.is_continuable = line.is_continuable or mode == "continuable"
            case UserMessage(content=content):
                if line.parent is None:
                    line.label = line.label or brief_title(opening(content))
            case StepStart():
                line.is_working = line.is_asking = True
            case AssistantReply(message=message, usage=usage):
                line.is_asking, line.trouble, line.outside = False, "", {}
                line.calls = {index: call.name for index, call in enumerate(message.calls)}
                line.usage = line.usage + (usage or Usage())
            case ApprovalAsked(index=index):
                line.held.add(index)
            case ApprovalDecided(index=index, verb=verb, by=by):
                line.held.discard(index)
                if verb == "reject" and by == "policy":
                    call = line.calls.get(index, "a call")
                    self._note(line, f"{call} was rejected: it needs an approval, and nobody can be asked (see --ask)")
            case ToolReturned(index=index):
                line.calls.pop(index, None)
                line.held.discard(index)
            case ActivationStart():
                self._begin(line, event.time)
            case TurnStart() | TurnResumed():
                line.is_working = True
                self._begin(line, event.time)
            case TurnEnd() as end:
                line.is_working = line.is_asking = False
                line.calls, line.held, line.trouble, line.outside = {}, set(), "", {}
                if not line.is_continuable:
                    self._end(line, turn_ending(end), event.time)
            case ActivationEnd(outcome=outcome):
                self._end(line, known_ending(outcome), event.time)
            case _:
                pass

    def _begin(self, line: Line, time_ms: int) -> None:
        if line.is_started:
            return
        line.is_started, line.state = True, None
        line.started_ms, line.ended_ms = time_ms, 0
        self._tell(line)

    def _end(self, line: Line, ending: Ending, time_ms: int) -> None:
        line.is_started, line.is_working, line.state, line.ended_ms = False, False, ending, time_ms
        self._tell(line)

    def _note(self, line: Line, text: str) -> None:
        for listener in self._noters:
            listener(line, text)

    def _tell(self, line: Line) -> None:
        for listener in self._listeners:
            listener(line)
