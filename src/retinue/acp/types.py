"""What goes over the wire, protocol version 1, as far as Retinue speaks it.

Fields that a client may send and Retinue does not need are passed over. Source: https://agentclientprotocol.com, JSON
Schema of version 1; what concerns subagents is from its unstable part and sent to clients that announce it alone.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field

from retinue.base.json import JSON, JSONObject

__all__ = [
    "VERSION",
    "AgentChunk",
    "AudioBlock",
    "AuthenticateParams",
    "Block",
    "CancelParams",
    "CloseParams",
    "CommonContent",
    "Cost",
    "DiffContent",
    "ImageBlock",
    "InitializeParams",
    "ListParams",
    "LoadParams",
    "Location",
    "McpServer",
    "ModeChanged",
    "NameValue",
    "NewParams",
    "PermissionAnswer",
    "PermissionOption",
    "Plan",
    "PlanEntry",
    "PromptParams",
    "ResourceBlock",
    "ResourceLink",
    "SessionInfo",
    "SessionMessage",
    "SetModeParams",
    "State",
    "StopReason",
    "SubagentUpdate",
    "TerminalContent",
    "TextBlock",
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

VERSION = 1
"""Of the protocol."""

StopReason: TypeAlias = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]
ToolKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]
ToolStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]


class _In(Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class _Out(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


# Content, in both directions


class TextBlock(_Out, frozen=True, tag="text", tag_field="type"):
    """Text, or Markdown."""

    text: str


class ImageBlock(_Out, frozen=True, tag="image", tag_field="type"):
    """An image as base64 text."""

    data: str
    mime_type: str


class AudioBlock(_In, frozen=True, tag="audio", tag_field="type"):
    """Sound, which Retinue does not take."""


class ResourceLink(_In, frozen=True, tag="resource_link", tag_field="type"):
    """Something that the agent may read."""

    name: str
    uri: str
    title: str | None = None
    description: str | None = None


class _Contents(_In, frozen=True):
    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class ResourceBlock(_In, frozen=True, tag="resource", tag_field="type"):
    """Something that comes with the prompt: text, or base64 text."""

    resource: _Contents


Block: TypeAlias = TextBlock | ImageBlock | AudioBlock | ResourceLink | ResourceBlock


# What clients ask


class InitializeParams(_In, frozen=True):
    """`initialize`. Capabilities are read one by one, since a bad one shall not spoil the others."""

    protocol_version: int
    client_capabilities: JSON = None


class AuthenticateParams(_In, frozen=True):
    """`authenticate`."""

    method_id: str


class NameValue(_In, frozen=True):
    """An environment variable or a header."""

    name: str
    value: str


class McpServer(_In, frozen=True):
    """A server of tools: a program, unless it says `http`."""

    name: str
    type: str = "stdio"
    command: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[NameValue, ...] = ()
    url: str | None = None
    headers: tuple[NameValue, ...] = ()


class NewParams(_In, frozen=True):
    """`session/new`."""

    cwd: str
    mcp_servers: tuple[McpServer, ...] = ()
    additional_directories: tuple[str, ...] = ()


class LoadParams(NewParams, frozen=True, kw_only=True):
    """`session/load` and `session/resume`."""

    session_id: str


class ListParams(_In, frozen=True):
    """`session/list`."""

    cwd: str | None = None
    cursor: str | None = None


class CloseParams(_In, frozen=True):
    """`session/close`."""

    session_id: str


class CancelParams(_In, frozen=True):
    """`session/cancel`."""

    session_id: str


class SetModeParams(_In, frozen=True):
    """`session/set_mode`."""

    session_id: str
    mode_id: str


class PromptParams(_In, frozen=True):
    """`session/prompt`. Blocks are read one by one, so that the error names the one that is wrong."""

    session_id: str
    prompt: tuple[Raw, ...]


# What clients are told


class _Update(_Out, frozen=True, tag_field="sessionUpdate"):
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


class CommonContent(_Out, frozen=True, tag="content", tag_field="type"):
    """A block as content of a call."""

    content: TextBlock | ImageBlock


class DiffContent(_Out, frozen=True, tag="diff", tag_field="type"):
    """A change of a file; without `old_text` it is new."""

    path: str
    new_text: str
    old_text: str | None = None


class TerminalContent(_Out, frozen=True, tag="terminal", tag_field="type"):
    """A terminal that shows what a call says."""

    terminal_id: str


ToolContent: TypeAlias = CommonContent | DiffContent | TerminalContent


class Location(_Out, frozen=True):
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


class ToolCallAsked(_Out, frozen=True, kw_only=True):
    """A call that waits for somebody's word; the client may not know of it yet."""

    tool_call_id: str
    title: str
    name: str
    kind: ToolKind
    content: tuple[ToolContent, ...] = ()
    locations: tuple[Location, ...] = ()
    raw_input: JSONObject
    status: ToolStatus | None = None


class PermissionOption(_Out, frozen=True):
    """One possible answer."""

    option_id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class _PermissionOutcome(_In, frozen=True):
    outcome: str
    option_id: str | None = None


class PermissionAnswer(_In, frozen=True):
    """The result of `session/request_permission`."""

    outcome: _PermissionOutcome


class PlanEntry(_Out, frozen=True):
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


class Cost(_Out, frozen=True):
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


class _ErrorObject(_Out, frozen=True):
    code: int
    message: str


class State(_Out, frozen=True):
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
