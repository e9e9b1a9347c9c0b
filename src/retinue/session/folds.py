"""Folds of a log, kept up to date event by event: what the model sees, and where the turns stand."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from retinue.base.ids import SessionId
from retinue.errors import CorruptSession
from retinue.model.content import AssistantMessage, Message, ToolCall, ToolMessage, Usage, UserMessage
from retinue.session.events import (
    ActivationEnd,
    ActivationStart,
    ApprovalAsked,
    AssistantReply,
    Descriptor,
    Event,
    RequestContext,
    RequestHeader,
    RequestHeaderChange,
    SessionHeader,
    StepEnd,
    StepStart,
    ToolReturned,
    ToolStart,
    TurnEnd,
    TurnResumed,
    TurnStart,
)

__all__ = [
    "CONTEXT_PLUGIN",
    "History",
    "OpenActivation",
    "OpenStep",
    "OpenTurn",
    "Turns",
    "descriptor",
    "seed_boundary",
    "total_usage",
]


CONTEXT_PLUGIN = "runtime-context"
"""The plugin that is named by the source of messages which say what holds for the agent now."""


class History:
    """The messages a model sees, in its order. Append-only, so a reader may keep a position in `messages`.

    Results are logged as calls end, but appear here in the order of the calls and only when all of a step are there.
    Empty assistant messages are left out.
    """

    __slots__ = ("_calls", "_results", "context", "messages")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.context: UserMessage | None = None
        """The newest message of the runtime context that the model still sees."""
        self._calls = 0
        self._results: dict[int, ToolMessage] = {}

    def apply(self, event: Event) -> None:
        """The event is part of the history."""
        data = event.data
        if type(data) is UserMessage:
            self.messages.append(data)
            if data.source.plugin == CONTEXT_PLUGIN:
                self.context = data
        elif type(data) is AssistantReply:
            if data.message.content:
                self.messages.append(data.message)
            self._calls = len(data.message.calls)
        elif type(data) is ToolReturned:
            self._results[data.index] = data.message
            if len(self._results) == self._calls:
                self.messages.extend(self._results[index] for index in sorted(self._results))
                self._results = {}
                self._calls = 0


class OpenStep(Struct):
    """A step that has no end yet. `reply` is None until the model answered."""

    number: int
    reply: AssistantMessage | None = None
    reply_seq: int = -1
    calls: tuple[ToolCall, ...] = ()
    """Those of the reply."""
    started: set[int] = field(default_factory=set[int])
    """Indexes of calls whose outside body was about to run."""
    held: set[int] = field(default_factory=set[int])
    """Indexes of calls that somebody's word was asked for. Until one starts, nothing of it has begun."""
    returned: set[int] = field(default_factory=set[int])
    """Indexes of calls with a result."""

    @property
    def missing(self) -> tuple[int, ...]:
        """Indexes of calls without a result."""
        return tuple([i for i in range(len(self.calls)) if i not in self.returned])

    def is_held(self, index: int) -> bool:
        """The call without a result waits for somebody's word, or has it and has not started."""
        return index in self.held and index not in self.started


class OpenTurn(Struct):
    """A turn that has no end yet, and what it owes."""

    number: int
    steps: int = 0
    """Steps begun."""
    step: OpenStep | None = None
    owes_step: bool = True
    """The last finished step had calls: the model must see their results."""
    truncated: bool = False
    """A step hit the token ceiling; the turn will end `max-tokens`."""
    refused: bool = False
    """The model declined in its last step."""
    concluded: bool = False
    """A result asked for the end of the turn."""
    resumed: int = 0
    """Times a process went on with it since its last finished step."""


class OpenActivation(Struct, frozen=True):
    """A residency of a continuable child that has not settled; `seq` is that of its start."""

    epoch: int
    seq: int


class Turns:
    """Where the turns and activations of a log stand. Raises CorruptSession for an event that cannot follow.

    The rules are those that driving needs; `invariants` checks more.
    """

    __slots__ = ("activation", "context", "epochs", "header", "last", "open", "session_id", "usage")

    def __init__(self, session_id: SessionId) -> None:
        self.session_id = session_id
        self.last = 0
        self.epochs = 0
        self.activation: OpenActivation | None = None
        self.open: OpenTurn | None = None
        self.header: RequestHeader | None = None
        self.context: RequestContext | None = None
        self.usage = Usage()

    def apply(self, event: Event) -> None:
        """The event is accounted for."""
        data = event.data
        match data:
            case AssistantReply():
                turn, step = self._step(event, data.turn, data.step)
                step.reply = data.message
                step.reply_seq = event.seq
                step.calls = data.message.calls
                turn.truncated = turn.truncated or data.finish == "length"
                turn.refused = data.finish == "content-filter"
                if data.usage is not None:
                    self.usage = self.usage + data.usage
            case ToolStart():
                self._step(event, data.turn, data.step)[1].started.add(data.index)
            case ApprovalAsked():
                self._step(event, data.turn, data.step)[1].held.add(data.index)
            case ToolReturned():
                turn, step = self._step(event, data.turn, data.step)
                if data.index in step.returned or not 0 <= data.index < len(step.calls):
                    raise self._corrupt(event, f"a result for call {data.index}, which is not owed")
                step.returned.add(data.index)
                turn.concluded = turn.concluded or data.concludes
            case StepStart():
                turn = self._turn(event, data.turn)
                if turn.step is not None or data.step != turn.steps + 1:
                    raise self._corrupt(event, f"step {data.step} cannot start here")
                turn.steps = data.step
                turn.step = OpenStep(data.step)
                turn.concluded = False
            case StepEnd():
                turn, step = self._step(event, data.turn, data.step)
                if len(step.returned) < len(step.calls):
                    raise self._corrupt(event, f"step {data.step} ends without the results of calls {step.missing}")
                turn.owes_step = bool(step.calls)
                turn.step = None
                turn.resumed = 0
            case TurnStart():
                if self.open is not None or data.turn != self.last + 1:
                    raise self._corrupt(event, f"turn {data.turn} cannot start here")
                self.last = data.turn
                self.open = OpenTurn(data.turn)
            case TurnEnd():
                turn = self._turn(event, data.turn)
                if turn.step is not None:
                    raise self._corrupt(event, f"turn {data.turn} ends inside step {turn.steps}")
                self.open = None
            case TurnResumed():
                self._turn(event, data.turn).resumed = data.n
            case RequestHeaderChange():
                self.header = data.header
            case RequestContext():
                self.context = data
            case ActivationStart():
                if self.activation is not None or data.epoch != self.epochs + 1:
                    raise self._corrupt(event, f"activation {data.epoch} cannot start here")
                self.epochs = data.epoch
                self.activation = OpenActivation(data.epoch, event.seq)
            case ActivationEnd():
                if self.activation is None or self.activation.epoch != data.epoch or self.open is not None:
                    raise self._corrupt(event, f"activation {data.epoch} cannot end here")
                self.activation = None
            case _:
                pass

    def _turn(self, event: Event, number: int) -> OpenTurn:
        if self.open is None or self.open.number != number:
            raise self._corrupt(event, f"turn {number} is not open")
        return self.open

    def _step(self, event: Event, turn_number: int, number: int) -> tuple[OpenTurn, OpenStep]:
        turn = self._turn(event, turn_number)
        if turn.step is None or turn.step.number != number:
            raise self._corrupt(event, f"step {number} of turn {turn_number} is not open")
        return turn, turn.step

    def _corrupt(self, event: Event, what: str) -> CorruptSession:
        return CorruptSession(f"session {self.session_id!r}: {what} (event {event.seq}, {event.type})")


def seed_boundary(events: Iterable[Event]) -> int:
    """How many events a delegation fork copies: up to and with the newest `turn/end`; 0 if no turn has ended."""
    return max((event.seq + 1 for event in events if type(event.data) is TurnEnd), default=0)


def descriptor(header: SessionHeader, events: Iterable[Event]) -> Descriptor | None:
    """The child's own descriptor: the first one after the seed. Source: behaviour SS-37."""
    first = header.seed_length or 0
    for event in events:
        if event.seq >= first and type(event.data) is Descriptor:
            return event.data
    return None


def total_usage(events: Iterable[Event], first: int = 0) -> Usage:
    """The usage of all replies from seq `first` on."""
    total = Usage()
    for event in events:
        if event.seq >= first and type(event.data) is AssistantReply and event.data.usage is not None:
            total = total + event.data.usage
    return total
