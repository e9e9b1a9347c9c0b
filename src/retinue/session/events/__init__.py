"""The vocabulary of session logs and its codec. The types themselves stand in the files beside, by what they tell of.

An event is a type, a contiguous seq, a time and a payload. In memory the payload is a typed struct; stored and shown
it is a JSON object. A type that this version does not know refuses the log, unless the event is marked ignorable.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

import msgspec
from msgspec import Struct

from retinue.base.json import JSON, JSONObject, decode, encode
from retinue.errors import CorruptSession, UnknownEvent
from retinue.model.content import UserMessage
from retinue.session.events.logged import ErrorRecord, Logged
from retinue.session.events.origin import DESCRIPTOR_VERSION, Descriptor, EndSeed, SessionHeader, ToolFilter
from retinue.session.events.permission import ApprovalAsked, ApprovalDecided, ExternalPermission, SandboxMode
from retinue.session.events.turn import (
    AssistantReply,
    EndReason,
    RequestContext,
    RequestHeader,
    RequestHeaderChange,
    StepEnd,
    StepStart,
    ToolReturned,
    ToolStart,
    TurnEnd,
    TurnResumed,
    TurnStart,
)
from retinue.session.events.work import (
    ActivationEnd,
    ActivationStart,
    ExternalPrompt,
    TaskEnded,
    TaskStarted,
    WorkflowAgentEnd,
    WorkflowAgentStart,
    WorkflowEnd,
    WorkflowStart,
)

__all__ = [
    "DESCRIPTOR_VERSION",
    "EVENT_TYPES",
    "ActivationEnd",
    "ActivationStart",
    "ApprovalAsked",
    "ApprovalDecided",
    "AssistantReply",
    "Descriptor",
    "EndReason",
    "EndSeed",
    "ErrorRecord",
    "Event",
    "ExternalPermission",
    "ExternalPrompt",
    "Opaque",
    "Payload",
    "RequestContext",
    "RequestHeader",
    "RequestHeaderChange",
    "SandboxMode",
    "SessionHeader",
    "StepEnd",
    "StepStart",
    "TaskEnded",
    "TaskStarted",
    "ToolFilter",
    "ToolReturned",
    "ToolStart",
    "TurnEnd",
    "TurnResumed",
    "TurnStart",
    "WorkflowAgentEnd",
    "WorkflowAgentStart",
    "WorkflowEnd",
    "WorkflowStart",
    "decode_event",
    "encode_payload",
    "event_object",
    "type_of",
]


class Opaque(Logged, frozen=True):
    """An ignorable event of a type that this version does not know; kept as it is."""

    type: str
    data: JSON


Payload: TypeAlias = (
    EndSeed
    | TurnStart
    | TurnEnd
    | TurnResumed
    | StepStart
    | StepEnd
    | UserMessage
    | AssistantReply
    | ApprovalAsked
    | ApprovalDecided
    | ToolStart
    | ToolReturned
    | RequestHeaderChange
    | RequestContext
    | Descriptor
    | SandboxMode
    | ActivationStart
    | ActivationEnd
    | ExternalPermission
    | ExternalPrompt
    | TaskStarted
    | TaskEnded
    | WorkflowStart
    | WorkflowAgentStart
    | WorkflowAgentEnd
    | WorkflowEnd
    | Opaque
)

EVENT_TYPES: dict[str, type[Payload]] = {
    "session/end-seed": EndSeed,
    "turn/start": TurnStart,
    "turn/end": TurnEnd,
    "turn/resumed": TurnResumed,
    "step/start": StepStart,
    "step/end": StepEnd,
    "user/message": UserMessage,
    "assistant/message": AssistantReply,
    "approval/asked": ApprovalAsked,
    "approval/decided": ApprovalDecided,
    "tool/start": ToolStart,
    "tool/result": ToolReturned,
    "request/header": RequestHeaderChange,
    "request/context": RequestContext,
    "subagent/descriptor": Descriptor,
    "sandbox/mode": SandboxMode,
    "subagent/activation": ActivationStart,
    "subagent/settled": ActivationEnd,
    "external/prompt": ExternalPrompt,
    "external/permission": ExternalPermission,
    "task/started": TaskStarted,
    "task/ended": TaskEnded,
    "tool-workflow/start": WorkflowStart,
    "tool-workflow/agent-start": WorkflowAgentStart,
    "tool-workflow/agent-end": WorkflowAgentEnd,
    "tool-workflow/end": WorkflowEnd,
}
"""Every event type this version writes."""

_names = {payload: name for name, payload in EVENT_TYPES.items()}


@cache
def _decoder(payload: type[Payload]) -> msgspec.json.Decoder[Payload]:
    """Made when the payload is first read: to make all of them is a good part of importing this."""
    return msgspec.json.Decoder(payload)


class Event(Struct, frozen=True, gc=False):
    """One entry of a log. `time` is epoch milliseconds."""

    seq: int
    time: int
    data: Payload

    @property
    def type(self) -> str:
        """The stored type name."""
        return type_of(self.data)


def type_of(data: Payload) -> str:
    """The stored type name of a payload."""
    return data.type if type(data) is Opaque else _names[type(data)]


def encode_payload(data: Payload) -> bytes:
    """The stored bytes of a payload. Raises: TypeError if it holds a value that is not JSON."""
    return encode(data.data if type(data) is Opaque else data)


def decode_event(session_id: str, seq: int, time: int, type_name: str, data: bytes, ignorable: bool) -> Event:
    """The event of one stored row.

    Raises: UnknownEvent for an unknown type that is not ignorable, CorruptSession for bytes that do not fit the type;
    both name the session and the seq.
    """
    payload = EVENT_TYPES.get(type_name)
    if payload is None and not ignorable:
        raise UnknownEvent(
            f"session {session_id!r} holds an event of unknown type {type_name!r} at seq {seq}; "
            "it was written by a newer version: use that version to read it"
        )
    try:
        known = Opaque(type_name, decode(data)) if payload is None else _decoder(payload).decode(data)
        return Event(seq, time, known)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        foreign = _foreign_descriptor(data) if type_name == "subagent/descriptor" else None
        if foreign is not None:
            return Event(seq, time, foreign)
        raise CorruptSession(f"session {session_id!r}: event {seq} ({type_name}) cannot be decoded: {error}") from error


class _Versioned(Struct, frozen=True):
    version: int = 0


def _foreign_descriptor(data: bytes) -> Descriptor | None:
    """A descriptor of another version is no error: all that is known of it is that version. Source: SS-32."""
    try:
        found = msgspec.json.decode(data, type=_Versioned)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if found.version == DESCRIPTOR_VERSION:
        return None
    return Descriptor(version=found.version, mode="continuable", provider="")


def event_object(event: Event) -> JSONObject:
    """The event as command lines and files show it: `type`, `seq`, `time`, `data`."""
    shown: JSONObject = {"type": event.type, "seq": event.seq, "time": event.time}
    shown["data"] = decode(encode_payload(event.data))
    if type(event.data) is Opaque:
        shown["ignorable"] = True
    return shown
