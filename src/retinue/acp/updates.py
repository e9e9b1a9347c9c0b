"""What clients are told: the updates of a session, and the call that they are asked about."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType, field

from retinue.acp.blocks import ImageBlock, TextBlock
from retinue.acp.wire import Sent
from retinue.base.json import JSONObject

__all__ = [
    "AgentChunk",
    "CommonContent",
    "Cost",
    "DiffContent",
    "Location",
    "ModeChanged",
    "PermissionOption",
    "Plan",
    "PlanEntry",
    "SessionInfo",
    "SessionMessage",
    "State",
    "StopReason",
    "SubagentUpdate",
    "TerminalContent",
    "ThoughtChunk",
    "ToolCallAsked",
    "ToolCallChanged",
    "ToolCallStarted",
    "ToolContent",
    "ToolKind",
    "ToolStatus",
    "Update",
    "UsageChanged",
    "UserChunk",
]

StopReason: TypeAlias = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]
ToolKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]
ToolStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]


class _Update(Sent, frozen=True, tag_field="sessionUpdate"):
    pass


class _Chunk(_Update, frozen=True):
    content: TextBlock | ImageBlock
    message_id: str | None = None


class UserChunk(_Chunk, frozen=True, tag="user_message_chunk"):
    """What a user said."""


class AgentChunk(_Chunk, frozen=True, tag="agent_message_chunk"):
    """What the model says."""


class ThoughtChunk(_Chunk, frozen=True, tag="agent_thought_chunk"):
    """What the model thinks."""


class CommonContent(Sent, frozen=True, tag="content", tag_field="type"):
    """A block as content of a call."""

    content: TextBlock | ImageBlock


class DiffContent(Sent, frozen=True, tag="diff", tag_field="type"):
    """A change of a file; without `old_text` it is new."""

    path: str
    new_text: str
    old_text: str | None = None


class TerminalContent(Sent, frozen=True, tag="terminal", tag_field="type"):
    """A terminal that shows what a call says."""

    terminal_id: str


ToolContent: TypeAlias = CommonContent | DiffContent | TerminalContent


class Location(Sent, frozen=True):
    """A file that a call is about."""

    path: str
    line: int | None = None


class ToolCallStarted(_Update, frozen=True, tag="tool_call"):
    """The model asks for a call."""

    tool_call_id: str
    title: str
    name: str | None = None
    kind: ToolKind = "other"
    status: ToolStatus = "pending"
    content: tuple[ToolContent, ...] = ()
    locations: tuple[Location, ...] = ()
    raw_input: JSONObject | UnsetType = UNSET
    meta: JSONObject | None = field(default=None, name="_meta")


class ToolCallChanged(_Update, frozen=True, tag="tool_call_update"):
    """What is new about a call; the rest stays as it was."""

    tool_call_id: str
    title: str | None = None
    status: ToolStatus | None = None
    content: tuple[ToolContent, ...] | None = None
    locations: tuple[Location, ...] | None = None
    raw_output: JSONObject | UnsetType = UNSET
    meta: JSONObject | None = field(default=None, name="_meta")


class ToolCallAsked(Sent, frozen=True, kw_only=True):
    """A call that waits for somebody's word; the client may not know of it yet."""

    tool_call_id: str
    title: str
    name: str
    kind: ToolKind
    content: tuple[ToolContent, ...] = ()
    locations: tuple[Location, ...] = ()
    raw_input: JSONObject
    status: ToolStatus | None = None


class PermissionOption(Sent, frozen=True):
    """One possible answer."""

    option_id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class PlanEntry(Sent, frozen=True):
    """One thing to do."""

    content: str
    priority: Literal["high", "medium", "low"]
    status: Literal["pending", "in_progress", "completed"]


class Plan(_Update, frozen=True, tag="plan"):
    """The whole plan as it is now."""

    entries: tuple[PlanEntry, ...]


class ModeChanged(_Update, frozen=True, tag="current_mode_update"):
    """The session has that mode now."""

    current_mode_id: str


class Cost(Sent, frozen=True):
    """Money."""

    amount: float
    currency: str


class UsageChanged(_Update, frozen=True, tag="usage_update"):
    """Tokens in the context now, of how many, and what the session has cost."""

    used: int
    size: int
    cost: Cost | None = None


class SessionInfo(_Update, frozen=True, tag="session_info_update"):
    """What the session is called."""

    title: str


class _ErrorObject(Sent, frozen=True):
    code: int
    message: str


class State(Sent, frozen=True):
    """What a child is doing; `error` where it stopped with one."""

    state: Literal["running", "idle", "requires_action"]
    stop_reason: StopReason | Literal["error"] | None = None
    error: _ErrorObject | None = None

    @classmethod
    def failed(cls, message: str) -> State:
        """At rest since its work failed."""
        return cls(state="idle", stop_reason="error", error=_ErrorObject(code=-32603, message=message))


class SubagentUpdate(_Update, frozen=True, tag="subagent_update"):
    """The session has a child, or something about it is new."""

    session_id: str
    title: str | None = None
    capabilities: JSONObject | None = None
    state: State | None = None
    cwd: str | None = None


class SessionMessage(_Update, frozen=True, tag="session_message"):
    """A message between agents, in the transcript of either."""

    message_id: str
    sender_session_id: str
    recipient_session_id: str
    sender_message_id: str | None = None
    recipient_message_id: str | None = None
    content: tuple[TextBlock | ImageBlock, ...] = ()


Update: TypeAlias = (
    UserChunk
    | AgentChunk
    | ThoughtChunk
    | ToolCallStarted
    | ToolCallChanged
    | Plan
    | ModeChanged
    | UsageChanged
    | SessionInfo
    | SubagentUpdate
    | SessionMessage
)
