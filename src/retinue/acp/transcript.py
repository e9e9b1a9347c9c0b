"""One session as its client sees it: a fold of durable events into updates, and live text ahead of them.

What has streamed is not said again by the reply that holds it. What another agent said is not a part of this; see
`tree.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from retinue.acp.blocks import ImageBlock, TextBlock
from retinue.acp.calls import call_id, call_started, plan_of, shown
from retinue.acp.outputs import Outputs, TerminalKey
from retinue.acp.updates import (
    AgentChunk,
    Cost,
    ModeChanged,
    State,
    StopReason,
    ThoughtChunk,
    ToolCallChanged,
    ToolCallStarted,
    ToolContent,
    ToolStatus,
    Update,
    UsageChanged,
    UserChunk,
)
from retinue.base.ids import MessageId, SessionId, derived_id
from retinue.model.chunks import Chunk, ReasoningDelta, TextDelta
from retinue.model.content import Image, Reasoning, Text, ToolCall, Usage, UserMessage
from retinue.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantReply,
    Event,
    RequestContext,
    SandboxMode,
    SessionHeader,
    StepStart,
    TaskEnded,
    ToolReturned,
    ToolStart,
    TurnEnd,
    TurnResumed,
    TurnStart,
)
from retinue.subagent.lifecycle import ExternalCall
from retinue.subagent.outcome import Ending, turn_diagnostic, turn_ending

__all__ = ["Transcript", "stop_reason"]

_STOPS: dict[Ending, StopReason] = {
    "completed": "end_turn",
    "max-tokens": "max_tokens",
    "refusal": "refusal",
    "aborted": "cancelled",
}


def stop_reason(ending: Ending) -> StopReason | None:
    """Why work that ended so stopped, in the protocol's words; None for what the protocol calls an error."""
    return _STOPS.get(ending)


class Transcript:
    """`tell` is called with each update, in order."""

    def __init__(
        self, header: SessionHeader, tell: Callable[[Update], None], *, terminals: TerminalKey | None = None
    ) -> None:
        """`terminals`: how the client wants to see commands, if it can show terminals that it does not run."""
        self.header = header
        self.next_seq = header.seed_length or 0
        """The first event that was not applied. What a fork copied is its parent's and not told."""
        self.own: set[MessageId] = set()
        """Messages that the client knows, since it sent them."""
        self.state = State(state="idle")
        self.label = ""
        self.steps = 0
        """Begun since the work that goes on, or went on last, began."""
        self.busy: dict[int, str] = {}
        """Names of the calls of the newest step that have no result, by index."""
        self.outside: dict[str, ExternalCall] = {}
        """Calls of its own that a program makes which works as this agent, by their ids here."""
        self.delegations: dict[SessionId, str] = {}
        """The id of the call that would start a child, by the id that the child would have."""
        self.results: dict[str, tuple[ToolContent, ...]] = {}
        """What is shown of the calls that started a child and have a result, by their ids."""
        self.outputs = Outputs(header.id, tell, terminals)
        """What calls say while they run."""
        self._tell = tell
        self._cwd = Path(header.cwd or "/")
        self._calls: tuple[ToolCall, ...] = ()
        self._reply_seq = -1
        self._window: int | None = None
        self._cost: float | None = 0.0
        self._streams: tuple[int, int] | None = None
        """The step (and its turn) whose text streams from its first chunk on."""
        self._has_streamed = False
        self._held: set[int] = set()
        """Calls of the newest step that wait for somebody's word, by index."""

    @property
    def id(self) -> SessionId:
        """The session's."""
        return self.header.id

    @property
    def cwd(self) -> Path:
        """Its working folder."""
        return self._cwd

    def call_of(self, question: str) -> str | None:
        """The id of the call of the newest step that asks that question."""
        for index in range(len(self._calls)):
            if derived_id("approval", self.id, self._reply_seq, index) == question:
                return call_id(self._reply_seq, index)
        return None

    def apply(self, event: Event, *, live: bool) -> None:
        """The client knows of the event. Only what is `live` can stream."""
        match event.data:
            case UserMessage() as message if message.source.kind == "user" and message.id not in self.own:
                for block in shown(message.content):
                    self._tell(UserChunk(content=block, message_id=message.id))
            case TurnStart() | TurnResumed():
                self._works()
                self.steps = 0
            case StepStart(turn=turn, step=step):
                self.steps += 1
                self._streams, self._has_streamed = ((turn, step) if live else None), False
            case AssistantReply() as reply:
                self._reply(event.seq, reply)
            case ToolStart(index=index):
                self.outputs.begun(call_id(self._reply_seq, index), self._calls[index].name, live=live)
            case ToolReturned() as returned:
                self.busy.pop(returned.index, None)
                self._decided(returned.index)
                changed = self.outputs.returned(self._reply_seq, self._calls[returned.index], returned, self._cwd)
                if "subagent_id" in (returned.meta or {}):
                    self.results[changed.tool_call_id] = changed.content or ()
                plan = plan_of(returned)
                if plan is not None:
                    self._tell(plan)
            case TaskEnded() as ended:
                self.outputs.task_ended(ended)
            case SandboxMode(mode=mode) if self.header.origin is None:
                self._tell(ModeChanged(current_mode_id=mode))
            case ApprovalAsked(index=index):
                self._held.add(index)
                self._works()
            case ApprovalDecided(index=index):
                self._decided(index)
            case RequestContext(context_window=window):
                self._window = window
            case TurnEnd() as end:
                self._leave_outside("failed")
                self.busy, self._held = {}, set()
                self.state = _at_rest(end)
            case _:
                pass

    def _decided(self, index: int) -> None:
        """That call waits no more, if it did: also its result takes a question back."""
        self._held.discard(index)
        self._works()

    def _works(self) -> None:
        self.state = State(state="requires_action" if self._held else "running")

    def _reply(self, seq: int, reply: AssistantReply) -> None:
        message_id = _message_id(reply.turn, reply.step, 1)
        for block in reply.message.content:
            match block:
                case Text(text=text) if text and not self._has_streamed:
                    self._tell(AgentChunk(content=TextBlock(text=text), message_id=message_id))
                case Reasoning(text=text) if text and not self._has_streamed:
                    self._tell(ThoughtChunk(content=TextBlock(text=text), message_id=f"thought-{message_id}"))
                case Image(media_type=media_type, data=data):
                    content = ImageBlock(data=data, mime_type=media_type)
                    self._tell(AgentChunk(content=content, message_id=message_id))
                case _:
                    pass
        self._streams = None
        self._leave_outside("failed" if reply.interrupted else "completed")
        self._calls, self._reply_seq = reply.message.calls, seq
        self.busy = {index: call.name for index, call in enumerate(self._calls)}
        for index, call in enumerate(self._calls):
            id = call_id(seq, index)
            self.delegations[SessionId(derived_id("agent", self.id, seq, index))] = id
            self._tell(call_started(seq, index, call, self._cwd, terminal=self.outputs.terminal(id, call.name)))
        if reply.usage is not None:
            self._used(reply.usage)

    def _used(self, usage: Usage) -> None:
        known = self._cost is not None and usage.cost_usd is not None
        self._cost = (self._cost or 0.0) + (usage.cost_usd or 0.0) if known else None
        if self._window is not None:
            cost = None if self._cost is None else Cost(amount=self._cost, currency="USD")
            self._tell(UsageChanged(used=usage.input_tokens + usage.output_tokens, size=self._window, cost=cost))

    def stream(self, turn: int, step: int, attempt: int, chunk: Chunk) -> None:
        """Live text of a step whose beginning was seen live; everything else comes with its reply."""
        if self._streams != (turn, step):
            return
        message_id = _message_id(turn, step, attempt)
        match chunk:
            case TextDelta(text=text) if text:
                self._has_streamed = True
                self._tell(AgentChunk(content=TextBlock(text=text), message_id=message_id))
            case ReasoningDelta(text=text) if text:
                self._has_streamed = True
                self._tell(ThoughtChunk(content=TextBlock(text=text), message_id=f"thought-{message_id}"))
            case _:
                pass

    def external(self, event: ExternalCall) -> bool:
        """The call stands so now. False if it belongs to no step whose beginning was seen live."""
        if self._streams != (event.turn, event.step):
            return False
        id = f"external-{event.turn}-{event.step}-{event.id}"
        if id in self.outside:
            self._tell(ToolCallChanged(tool_call_id=id, title=event.title, status=event.status))
        else:
            self._tell(ToolCallStarted(tool_call_id=id, title=event.title, kind=event.kind, status=event.status))
        self.outside[id] = event
        return True

    def _leave_outside(self, status: ToolStatus) -> None:
        """The program has gone, and with it what it was at."""
        for id, event in self.outside.items():
            if not event.has_ended:
                self._tell(ToolCallChanged(tool_call_id=id, status=status))
        self.outside = {}

    def withdraw(self) -> None:
        """What has streamed in this step counts for nothing; the next attempt is a message of its own."""
        self._has_streamed = False


def _message_id(turn: int, step: int, attempt: int) -> str:
    return f"message-{turn}-{step}" if attempt == 1 else f"message-{turn}-{step}-{attempt}"


def _at_rest(end: TurnEnd) -> State:
    reason = stop_reason(turn_ending(end))
    return (
        State.failed(turn_diagnostic(end) or "it failed") if reason is None else State(state="idle", stop_reason=reason)
    )
