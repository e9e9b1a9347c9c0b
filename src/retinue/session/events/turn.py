"""What happens in a turn: its steps, their requests and replies, and the calls."""

from __future__ import annotations

from typing import Literal, TypeAlias

from retinue.base.json import JSON
from retinue.model.content import AssistantMessage, ToolMessage, Usage
from retinue.model.encoding import Encoding, SentBody
from retinue.session.events.logged import ErrorRecord, Logged

__all__ = [
    "AssistantReply",
    "EndReason",
    "RequestContext",
    "RequestHeader",
    "RequestHeaderChange",
    "StepEnd",
    "StepStart",
    "ToolReturned",
    "ToolStart",
    "TurnEnd",
    "TurnResumed",
    "TurnStart",
]


EndReason: TypeAlias = Literal["completed", "max-tokens", "aborted", "blocked", "error", "interrupted"]


class TurnStart(Logged, frozen=True):
    """A turn took input."""

    turn: int


class TurnEnd(Logged, frozen=True, kw_only=True):
    """A turn owes nothing more. `cause` says who aborted or blocked it; `parked` counts the messages left waiting."""

    turn: int
    reason: EndReason
    cause: str | None = None
    detail: str | None = None
    error: ErrorRecord | None = None
    parked: int = 0


class TurnResumed(Logged, frozen=True):
    """A process went on with an open turn for the `n`-th time since its last finished step."""

    turn: int
    n: int


class StepStart(Logged, frozen=True):
    """A model request and its tool calls begin."""

    turn: int
    step: int


class StepEnd(Logged, frozen=True):
    """Every call of the step has its result."""

    turn: int
    step: int
    sent: SentBody | None = None
    """The request of a step that has no reply."""


class RequestHeader(Logged, frozen=True, kw_only=True):
    """What every request repeats; absent where there is none. `tools` are name, description, parameters."""

    config: dict[str, JSON]
    system: str | None = None
    tools: tuple[dict[str, JSON], ...] | None = None


class RequestHeaderChange(Logged, frozen=True):
    """`request/header`: from here on requests carry this header."""

    header: RequestHeader
    reason: Literal["initial", "resume", "change"]


class RequestContext(Logged, frozen=True):
    """`request/context`: where requests go from here on."""

    provider: str
    model: str
    context_window: int | None = None
    encoder: Encoding | None = None
    """What makes the bodies of requests; absent if the client does not say."""


class AssistantReply(Logged, frozen=True, kw_only=True):
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


class ToolStart(Logged, frozen=True, kw_only=True):
    """An outside body is about to run."""

    turn: int
    step: int
    index: int
    call_id: str
    name: str


class ToolReturned(Logged, frozen=True, kw_only=True):
    """`tool/result`: what a call came to. It belongs to the step's `assistant/message` at `index`."""

    turn: int
    step: int
    index: int
    message: ToolMessage
    error: ErrorRecord | None = None
    concludes: bool = False
    meta: dict[str, JSON] | None = None
