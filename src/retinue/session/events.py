"""The vocabulary of session logs and its codec.

An event is a type, a contiguous seq, a time and a payload. In memory the payload is a typed struct; stored and shown
it is a JSON object. A type that this version does not know refuses the log, unless the event is marked ignorable.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from retinue.base.ids import SessionId
from retinue.base.json import JSON, JSONObject, decode, encode
from retinue.errors import CorruptSession, UnknownEvent
from retinue.model.content import AssistantMessage, ToolMessage, Usage, UserMessage
from retinue.model.encoding import Encoding, SentBody

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


class _Data(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    pass


class SessionHeader(_Data, frozen=True, kw_only=True):
    """What a session is from its first moment; never changed afterwards. Source: behaviour SE-15."""

    id: SessionId
    created_at: int
    """Epoch milliseconds."""
    version: int = 0
    cwd: str | None = None
    """Absolute."""
    parent_session: SessionId | None = None
    seed_length: int | None = None
    """Events copied from the parent; absent where nothing was."""
    origin: Literal["subagent"] | None = None
    delegation_depth: int = 0


class ErrorRecord(_Data, frozen=True):
    """A failure as the log keeps it."""

    code: str
    message: str


class EndSeed(_Data, frozen=True):
    """What came before was given at creation."""


EndReason: TypeAlias = Literal["completed", "max-tokens", "aborted", "blocked", "error", "interrupted"]


class TurnStart(_Data, frozen=True):
    """A turn took input."""

    turn: int


class TurnEnd(_Data, frozen=True, kw_only=True):
    """A turn owes nothing more. `cause` says who aborted or blocked it; `parked` counts the messages left waiting."""

    turn: int
    reason: EndReason
    cause: str | None = None
    detail: str | None = None
    error: ErrorRecord | None = None
    parked: int = 0


class TurnResumed(_Data, frozen=True):
    """A process went on with an open turn for the `n`-th time since its last finished step."""

    turn: int
    n: int


class StepStart(_Data, frozen=True):
    """A model request and its tool calls begin."""

    turn: int
    step: int


class StepEnd(_Data, frozen=True):
    """Every call of the step has its result."""

    turn: int
    step: int
    sent: SentBody | None = None
    """The request of a step that has no reply."""


class AssistantReply(_Data, frozen=True, kw_only=True):
    """`assistant/message`: what the model answered in this step."""

    turn: int
    step: int
    message: AssistantMessage
    usage: Usage | None = None
    finish: Literal["length", "content-filter"] | None = None
    """Why the reply is not whole: its token ceiling (tool calls were dropped), or the model declined."""
    interrupted: bool = False
    """The turn was aborted while it streamed; what was visible is kept."""
    sent: SentBody | None = None
    """The request that it answers; absent if none left, or if its client has no encoder to make it again."""


class ToolStart(_Data, frozen=True, kw_only=True):
    """An outside body is about to run."""

    turn: int
    step: int
    index: int
    call_id: str
    name: str


class ApprovalAsked(_Data, frozen=True, kw_only=True):
    """`approval/asked`: a call is held until somebody decides. Nothing of it has begun, and a result withdraws it."""

    id: str
    turn: int
    step: int
    index: int
    call_id: str
    name: str
    rule: str
    """The rule that asks."""


class ApprovalDecided(_Data, frozen=True, kw_only=True):
    """`approval/decided`: what was decided about a call that is held, and whether by somebody or by the policy."""

    id: str
    turn: int
    step: int
    index: int
    verb: Literal["allow", "reject"]
    by: Literal["user", "policy"]
    grants: str | None = None
    """The rule that does not ask this agent any more."""
    words: str | None = None
    """Why not, for the model."""


class ToolReturned(_Data, frozen=True, kw_only=True):
    """`tool/result`: what a call came to. It belongs to the step's `assistant/message` at `index`."""

    turn: int
    step: int
    index: int
    message: ToolMessage
    error: ErrorRecord | None = None
    concludes: bool = False
    meta: dict[str, JSON] | None = None


class RequestHeader(_Data, frozen=True, kw_only=True):
    """What every request repeats; absent where there is none. `tools` are name, description, parameters."""

    config: dict[str, JSON]
    system: str | None = None
    tools: tuple[dict[str, JSON], ...] | None = None


class RequestHeaderChange(_Data, frozen=True):
    """`request/header`: from here on requests carry this header."""

    header: RequestHeader
    reason: Literal["initial", "resume", "change"]


class RequestContext(_Data, frozen=True):
    """`request/context`: where requests go from here on."""

    provider: str
    model: str
    context_window: int | None = None
    encoder: Encoding | None = None
    """What makes the bodies of requests; absent if the client does not say."""


class ToolFilter(_Data, frozen=True):
    """Which inherited tools a child sees."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None


DESCRIPTOR_VERSION = 2
"""Of the descriptors that this version writes and can build children from."""


class Descriptor(_Data, frozen=True, kw_only=True):
    """`subagent/descriptor`: what a child was made from, enough to build it again. Source: behaviour SS-31."""

    version: int = DESCRIPTOR_VERSION
    mode: Literal["one-shot", "continuable"]
    provider: str
    label: str | None = None
    agent_provider: str | None = None
    agent_model: str | None = None
    persona: str | None = None
    tool_filter: ToolFilter | None = None
    max_tokens: int | None = None


class ActivationStart(_Data, frozen=True):
    """`subagent/activation`: a residency of this continuable child begins, the `epoch`-th."""

    epoch: int


class ActivationEnd(_Data, frozen=True, kw_only=True):
    """`subagent/settled`: that residency ended so; the parent's notice is in the same transaction."""

    epoch: int
    outcome: str
    detail: str | None = None
    usage: Usage | None = None
    parked: int = 0
    """Messages that wait for somebody to resume the child."""
    undelivered: bool = False
    """The parent's session does not exist any more, so nobody was told."""


class ExternalPrompt(_Data, frozen=True, kw_only=True):
    """`external/prompt`: what is new in this step is about to be given to a session of another program."""

    turn: int
    step: int
    session: str
    """Its id there."""


class ExternalPermission(_Data, frozen=True, kw_only=True):
    """`external/permission`: the program asked whether it may make a call of its own, and what was decided."""

    turn: int
    step: int
    title: str
    """What the program calls it."""
    verb: Literal["allow", "reject"]
    by: Literal["user", "policy"]
    always: bool = False
    """This child's program is not asked about any more."""


class TaskStarted(_Data, frozen=True, kw_only=True):
    """`task/started`: background work of this session began, in this process alone."""

    task_id: str
    kind: str
    label: str


class TaskEnded(_Data, frozen=True, kw_only=True):
    """`task/ended`: that work is over and its resources are released."""

    task_id: str
    status: Literal["completed", "killed", "failed"]
    detail: str | None = None


class SandboxMode(_Data, frozen=True):
    """`sandbox/mode`: the permission preset from here on, and who set it."""

    mode: str
    source: str


class WorkflowStart(_Data, frozen=True, kw_only=True):
    """`tool-workflow/start`: the script of the call at `index` runs, for the `n`-th time: it does so again from its
    start when a process went on with the call."""

    turn: int
    step: int
    index: int
    name: str
    n: int = 1


class WorkflowAgentStart(_Data, frozen=True, kw_only=True):
    """`tool-workflow/agent-start`: the workflow waits for this child, which it starts or finds again."""

    index: int
    id: SessionId
    label: str
    phase: str | None = None


class WorkflowAgentEnd(_Data, frozen=True, kw_only=True):
    """`tool-workflow/agent-end`: how that child ended."""

    index: int
    id: SessionId
    outcome: str
    detail: str | None = None


class WorkflowEnd(_Data, frozen=True, kw_only=True):
    """`tool-workflow/end`: the script has ended, and it waits for no child any more."""

    turn: int
    step: int
    index: int
    outcome: Literal["completed", "failed"]
    detail: str | None = None


class Opaque(_Data, frozen=True):
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
_decoders = {name: msgspec.json.Decoder(payload) for name, payload in EVENT_TYPES.items()}


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
    decoder = _decoders.get(type_name)
    if decoder is None and not ignorable:
        raise UnknownEvent(
            f"session {session_id!r} holds an event of unknown type {type_name!r} at seq {seq}; "
            "it was written by a newer version: use that version to read it"
        )
    try:
        return Event(seq, time, Opaque(type_name, decode(data)) if decoder is None else decoder.decode(data))
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
