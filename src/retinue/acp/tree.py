"""A tree of sessions as one client sees it: the root's updates, and of the children what the client can show.

A client that announced subagent sessions is told of every child before anything of it, then of what each does under its
own id, and of messages between agents. For others a child is the call that started it, which makes progress.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from heapq import merge
from pathlib import Path

from retinue.acp.blocks import TextBlock
from retinue.acp.calls import call_asked, call_id, shown
from retinue.acp.outputs import TerminalKey
from retinue.acp.transcript import Transcript
from retinue.acp.updates import (
    CommonContent,
    SessionMessage,
    State,
    SubagentUpdate,
    ToolCallAsked,
    ToolCallChanged,
    Update,
)
from retinue.agent.signals import CallOutput, ChunkArrived, ChunksWithdrawn
from retinue.base.ids import MessageId, SessionId
from retinue.host.approvals import Question
from retinue.model.content import UserMessage
from retinue.session.events import AssistantReply, Event, SessionHeader, StepStart, ToolReturned, TurnEnd
from retinue.session.folds import descriptor
from retinue.session.session import Session
from retinue.session.store import SessionRecord
from retinue.subagent.child import prompt_id
from retinue.subagent.lifecycle import ExternalCall

__all__ = ["Tell", "TreeView"]

Tell = Callable[[SessionId, Update], None]
"""Called with the session that an update belongs to, and the update."""


class TreeView:
    """What the client knows of one tree. Hand it the durable events of every session, and the chunks."""

    def __init__(self, root: SessionId, tell: Tell, *, subagents: bool, terminals: TerminalKey | None = None) -> None:
        self.root = root
        self.is_muted = True
        """Nothing is told: the client does not know the session yet."""
        self._tell = tell
        self._subagents = subagents
        self._terminals: TerminalKey | None = terminals
        self._transcripts: dict[SessionId, Transcript] = {}
        self._own: set[MessageId] = set()
        """Messages that the client sent to the root."""
        self._states: dict[SessionId, State] = {}
        """What the client was told of each child."""
        self._stored: dict[SessionId, SessionRecord] = {}
        """Who is met while stored events are told."""
        self._held: list[tuple[Session, Sequence[Event]]] | None = None
        """What came meanwhile."""

    # What happens

    def observe(self, session: Session, events: Sequence[Event]) -> None:
        """The client knows of the events, if they belong to the tree. What it knows already is passed over."""
        if session.root != self.root:
            return
        if self._held is not None:
            self._held.append((session, events))
            return
        transcript = self._known(session.header, session.events)
        for event in events:
            self._apply(transcript, event, live=True)

    def chunk(self, event: ChunkArrived) -> None:
        """Live text, if it belongs to the tree."""
        transcript = self._streaming(event)
        if transcript is not None:
            transcript.stream(event.turn, event.step, event.attempt, event.chunk)

    def withdrawn(self, event: ChunksWithdrawn) -> None:
        """Live text counts for nothing."""
        transcript = self._streaming(event)
        if transcript is not None:
            transcript.withdraw()

    def output(self, event: CallOutput) -> None:
        """A call says that, if it belongs to the tree; it is told with `tell_output`."""
        transcript = self._transcripts.get(event.agent.id)
        if transcript is not None and self._shows(event.agent.id):
            transcript.outputs.add(call_id(event.key.seq, event.key.index), event.text)

    def external(self, event: ExternalCall) -> None:
        """A program that works as an agent of the tree has got on with a call of its own."""
        transcript = self._transcripts.get(event.agent.id)
        if self._held is None and transcript is not None and transcript.external(event) and not self._subagents:
            self._progress(transcript)

    def tell_output(self) -> None:
        """What calls said by now was told."""
        if self._held is None:
            for transcript in self._transcripts.values():
                transcript.outputs.tell_new()

    def _shows(self, id: SessionId) -> bool:
        return self._subagents or id == self.root

    def _streaming(self, event: ChunkArrived | ChunksWithdrawn) -> Transcript | None:
        return None if self._held is not None else self._transcripts.get(event.agent.id)

    def sent(self, id: MessageId) -> None:
        """The client sent that message to the root and need not be told of it."""
        self._own.add(id)

    def folder(self, id: SessionId) -> Path:
        """Where that session works, as far as it is known."""
        transcript = self._transcripts.get(id)
        return transcript.cwd if transcript is not None else Path("/")

    def question(self, question: Question, *, before: str | None = None) -> tuple[SessionId, ToolCallAsked]:
        """Under which session the client is asked, and about which call. Who sees no children is asked by the root.

        `before` is the text of a file that the call would replace.
        """
        transcript = self._transcripts.get(question.agent)
        call = (transcript.call_of(question.id) if transcript is not None else None) or question.id
        cwd = self.folder(question.agent)
        if question.agent == self.root or (self._subagents and transcript is not None):
            return question.agent, call_asked(call, question, cwd, before=before)
        by = " > ".join(question.path[1:])
        return self.root, call_asked(f"{question.agent}/{call}", question, cwd, by=by, before=before)

    # What is stored

    def hold(self) -> None:
        """What happens from now on is told after `catch_up`."""
        self._held = []

    async def catch_up(
        self, records: Sequence[SessionRecord], *, tell: bool, room: Callable[[], Awaitable[None]]
    ) -> None:
        """The client was told all that is stored, or only who is there; then what has happened since `hold`.

        `room` waits until the client has read most of what it was told: a long history does not pile up.
        """
        self.is_muted = not tell
        self._stored = {record.header.id: record for record in records}
        for record in records[:1]:  # the root, which may have no events yet
            self._known(record.header, record.events)
        logs = [_numbered(at, record.events) for at, record in enumerate(records)]
        for at, event in merge(*logs, key=lambda entry: (entry[1].time, entry[0])):
            self._apply(self._known(records[at].header, records[at].events), event, live=False)
            await room()
        self.is_muted, self._stored = False, {}
        if not tell:
            for transcript in self._transcripts.values():
                self._announce(transcript)
        held, self._held = self._held or [], None
        for session, events in held:
            self.observe(session, events)

    # Telling

    def _known(self, header: SessionHeader, events: Sequence[Event]) -> Transcript:
        transcript = self._transcripts.get(header.id)
        if transcript is None:
            transcript = Transcript(
                header,
                (lambda update: self.say(header.id, update)) if self._shows(header.id) else _nothing,
                terminals=self._terminals,
            )
            if header.id == self.root:
                transcript.own = self._own
            made = descriptor(header, events)
            transcript.label = (made.label if made is not None else None) or ""
            if made is not None:
                transcript.own.add(prompt_id(header.id))  # told as a message of its parent
            self._transcripts[header.id] = transcript
            self._announce(transcript)
            if made is not None and made.mode == "one-shot":
                self._waits(transcript)
        return transcript

    def say(self, id: SessionId, update: Update) -> None:
        """The client is told, unless it does not know the session yet."""
        if not self.is_muted:
            self._tell(id, update)

    def _announce(self, child: Transcript) -> None:
        parent = child.header.parent_session
        if self._subagents and parent is not None and child.id != self.root:
            self._states[child.id] = child.state
            self.say(
                parent,
                SubagentUpdate(
                    session_id=child.id,
                    title=child.label or None,
                    capabilities={"cancel": {}},
                    state=child.state,
                    cwd=child.header.cwd,
                ),
            )

    def _waits(self, child: Transcript) -> None:
        """The call that started a child and waits for it is under way, for those who see the child itself as well."""
        above = self._transcripts.get(child.header.parent_session or child.id)
        call = above.delegations.get(child.id) if above is not None else None
        if self._subagents and above is not None and call is not None and call not in above.results:
            self.say(above.id, ToolCallChanged(tool_call_id=call, status="in_progress"))

    def _apply(self, transcript: Transcript, event: Event, *, live: bool) -> None:
        if event.seq < transcript.next_seq:
            return
        transcript.next_seq = event.seq + 1
        if isinstance(event.data, UserMessage):
            self._message(transcript, event.data)
        transcript.apply(event, live=live)
        if transcript.id == self.root:
            return
        if self._subagents:
            self._state(transcript)
        elif live and isinstance(event.data, StepStart | AssistantReply | ToolReturned | TurnEnd):
            self._progress(transcript)

    def _state(self, child: Transcript) -> None:
        parent = child.header.parent_session
        if parent is not None and self._states.get(child.id) != child.state:
            self._states[child.id] = child.state
            self.say(parent, SubagentUpdate(session_id=child.id, state=child.state))

    def _message(self, to: Transcript, message: UserMessage) -> None:
        """A message between agents is in the transcripts of both, the sender's first."""
        is_prompt = message.id == prompt_id(to.id)
        sender = to.header.parent_session if is_prompt else message.source.sender_session_id
        if not self._subagents or sender is None:
            return
        stored = self._stored.get(sender)
        if stored is not None:  # before anything that names it
            self._known(stored.header, stored.events)
        if sender in self._transcripts:
            self.say(sender, _between(sender, to.id, message, incoming=False))
        self.say(to.id, _between(sender, to.id, message, incoming=True))

    def _progress(self, child: Transcript) -> None:
        """The call of the root that this child, or one above it, was started by shows what goes on below."""
        at = child
        while at.header.parent_session not in (self.root, None):
            above = self._transcripts.get(at.header.parent_session or at.id)
            if above is None:
                return
            at = above
        root = self._transcripts.get(self.root)
        call = root.delegations.get(at.id) if root is not None else None
        if root is None or call is None:
            return
        line = CommonContent(content=TextBlock(text=_line(child)))
        known = root.results.get(call)
        status = "in_progress" if known is None else None
        self.say(self.root, ToolCallChanged(tool_call_id=call, status=status, content=(*(known or ()), line)))


def _numbered(at: int, events: Sequence[Event]) -> list[tuple[int, Event]]:
    return [(at, event) for event in events]


def _nothing(_: Update) -> None:
    pass


def _line(child: Transcript) -> str:
    """What an agent does now; never what it says."""
    name = child.label or child.id
    if child.state.state != "running":
        return f"{name}: done after {child.steps} {'step' if child.steps == 1 else 'steps'}"
    outside = {event.title for event in child.outside.values() if not event.has_ended}
    calls = ", ".join(sorted({*child.busy.values(), *outside}))
    return f"{name}: step {child.steps}" + (f", {calls}" if calls else "")


def _between(sender: SessionId, to: SessionId, message: UserMessage, *, incoming: bool) -> SessionMessage:
    return SessionMessage(
        message_id=message.id,
        sender_session_id=sender,
        recipient_session_id=to,
        sender_message_id=message.id if incoming else None,
        recipient_message_id=None if incoming else message.id,
        content=shown(message.content),
    )
