"""Content blocks and messages as the log keeps them and as every model client understands them.

All structs are immutable and safe to share between sessions. Field order and names are the stored form: adding a field
with a default is compatible, anything else is a new schema version.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

from retinue.base.ids import MessageId, SessionId

__all__ = [
    "AssistantMessage",
    "Block",
    "Image",
    "InputBlock",
    "Message",
    "Reasoning",
    "Source",
    "Text",
    "ToolCall",
    "ToolMessage",
    "USER",
    "Usage",
    "UserMessage",
    "text_of",
]


class _Frozen(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Common options: immutable, compact on disk, strict when read. Only for structs that cannot form cycles."""


class Text(_Frozen, frozen=True, tag="text"):
    """Plain text, UTF-8 without lone surrogates."""

    text: str


class Reasoning(_Frozen, frozen=True, tag="reasoning"):
    """What a reasoning model thought. `signature` is the provider's opaque proof, sent back unchanged if present."""

    text: str
    signature: str | None = None


class Image(_Frozen, frozen=True, tag="image"):
    """An image as base64 text. `media_type` is `image/png`, `image/jpeg`, `image/gif` or `image/webp`."""

    media_type: str
    data: str


class ToolCall(_Frozen, frozen=True, tag="tool_call"):
    """A call that the model asks for. `id` is wire data and may repeat; `arguments` is the raw text the model wrote."""

    id: str
    name: str
    arguments: str


InputBlock: TypeAlias = Text | Image
Block: TypeAlias = Text | Reasoning | Image | ToolCall


class Source(_Frozen, frozen=True):
    """Who a user-role message comes from: provenance, never authority.

    `kind` is `user`, `coordinator`, `subagent-report`, `subagent-settled`, `plugin` or `runtime`; `form` is `relay` or
    `notice` where it is not the user's own words; `summary` is one bounded line for front ends.
    """

    kind: str = "user"
    form: str | None = None
    sender_session_id: SessionId | None = None
    plugin: str | None = None
    summary: str | None = None


USER = Source()


class UserMessage(_Frozen, frozen=True, tag="user", tag_field="role"):
    """A message in user role: what the agent was told, by whomever `source` names."""

    id: MessageId
    content: tuple[InputBlock, ...]
    source: Source = USER


class AssistantMessage(_Frozen, frozen=True, tag="assistant", tag_field="role"):
    """One reply of the model. Empty content exists only to hold usage and is not part of derived history."""

    content: tuple[Block, ...]

    @property
    def text(self) -> str:
        """The visible text, blocks joined without a separator."""
        return text_of(self.content)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in the model's order; their position here is a call's index."""
        return tuple(b for b in self.content if type(b) is ToolCall)


class ToolMessage(_Frozen, frozen=True, tag="tool", tag_field="role"):
    """The result of one call. `call_id` repeats the wire id of the call."""

    call_id: str
    content: tuple[InputBlock, ...]
    is_error: bool = False


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


def text_of(content: tuple[Block, ...] | tuple[InputBlock, ...]) -> str:
    """The text blocks of `content`, joined without a separator."""
    return "".join(b.text for b in content if type(b) is Text)


class Usage(_Frozen, frozen=True):
    """Tokens of one or more requests.

    `cached_tokens` were read from the provider's cache and `cache_write_tokens` put there: parts of input.
    `reasoning_tokens` are a part of output.
    `requests` counts answered model requests; `cost_usd` is None while any part of it is unknown.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    requests: int = 0
    cost_usd: float | None = field(default=None)
    cache_write_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        if not self.requests:
            return other
        if not other.requests:
            return self
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            requests=self.requests + other.requests,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
        )
