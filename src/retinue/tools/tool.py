"""What a tool is, what its body is given and what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from retinue.base.ids import SessionId
from retinue.base.json import JSON, JSONObject
from retinue.errors import BadInput
from retinue.model.client import ToolSpec
from retinue.model.content import InputBlock, Text
from retinue.session.transaction import Transaction

__all__ = ["Body", "CallKey", "Caller", "Effect", "Tool", "ToolContext", "ToolResult"]

Effect: TypeAlias = Literal["outside", "rows"]
"""`outside`: the body may change the world, so `tool/start` is committed before it runs and it never runs again after a
crash. `rows`: its whole effect is rows under derived ids, so after a crash it is executed again."""


class Caller(Protocol):
    """The agent that asked, as far as every tool may know it. A body that needs more checks for the class it needs."""

    @property
    def id(self) -> SessionId:
        """The session the call belongs to."""
        ...

    @property
    def cwd(self) -> Path:
        """Absolute working folder of the agent."""
        ...


class CallKey(Struct, frozen=True, kw_only=True):
    """The identity of a call for ever: its session, the seq of the `assistant/message` that asked, the index in it.

    Source: architecture, section 3, derived ids. The provider's call id is not one, since providers repeat ids.
    """

    session_id: SessionId
    seq: int
    index: int

    @property
    def parts(self) -> tuple[str, int, int]:
        """What `derived_id` takes."""
        return (self.session_id, self.seq, self.index)


class ToolContext(Struct, frozen=True, kw_only=True):
    """What one call knows about itself. `caller` is None only when a host calls a tool directly."""

    caller: Caller | None
    key: CallKey
    name: str
    """The name the model used."""
    call_id: str
    turn: int
    step: int
    tell: Callable[[str], None] | None = None
    """Takes what is new of the call's output, for whoever watches; None = nobody does. It never blocks. Also for work
    that the call leaves in the background. Nothing of it is logged or read by the model: the result has what counts."""
    created: list[str] = []
    """Durable things that this call made, as the model may name them: an aborted call still shows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a call came to. Only `content` and `is_error` reach the model."""

    content: tuple[InputBlock, ...]
    is_error: bool = False
    code: str | None = None
    """The error's stable name; set exactly when `is_error` is."""
    value: JSON = None
    """The typed result for hosts and observers."""
    meta: JSONObject = field(default_factory=dict[str, JSON])
    """Facts for front ends, logged with the result: a changed path, a child's id. Never shown to the model."""
    concludes: bool = False
    """The turn ends after this step, unless more input waits."""
    context: tuple[str, ...] = ()
    """Extra notes for the model's next step."""
    writes: Callable[[Transaction], None] | None = None
    """Adds the call's rows to the batch that holds its `tool/result`: how a tool of effect `rows` takes effect."""

    @classmethod
    def text(cls, text: str, *, value: JSON = None, meta: JSONObject | None = None) -> ToolResult:
        """A success that shows `text`."""
        return cls(content=(Text(text),), value=text if value is None else value, meta=meta or {})

    @classmethod
    def error(cls, code: str, message: str, *, meta: JSONObject | None = None) -> ToolResult:
        """A failure; the model sees `Error: ` and the message (behaviour TR-12)."""
        return cls(content=(Text(f"Error: {message}"),), is_error=True, code=code, meta=meta or {})


Body: TypeAlias = Callable[[ToolContext, JSONObject], Awaitable[ToolResult]]


def _never_safe(_: JSONObject) -> bool:
    return False


def _accept(_: JSONObject) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. `body` gets arguments that satisfy the schema; it raises ToolFailure for what the model can act on.

    A cancelled body must stop what it started and re-raise; it may not swallow cancellation.
    """

    spec: ToolSpec
    body: Body
    validate: Callable[[JSONObject], None] = _accept
    """Raises ToolFailure `INVALID_ARGS` for arguments that break the schema: asked first, so that nobody is asked to
    approve such a call. A body made by `function.py` checks them itself as well."""
    is_safe: Callable[[JSONObject], bool] = _never_safe
    """With these arguments the call may overlap others of its step. Asked again right before each start."""
    timeout_s: float | None = None
    """The body is cancelled after so long and the call fails with `TIMEOUT`; None = no limit of its own."""
    effect: Effect = "outside"
    pooled: bool = True
    """Counts against the limit of overlapping bodies of a step; delegations do not (behaviour TD-03)."""
    output_limit: int | None = None
    """Bytes of text shown before the rest is spilled to a file; None = the pipeline's default."""

    def __post_init__(self) -> None:
        if self.timeout_s is not None and not 0 < self.timeout_s < float("inf"):
            raise BadInput(f"tool {self.spec.name!r}: timeout_s must be positive and finite, not {self.timeout_s}")

    @property
    def name(self) -> str:
        """The name it is offered under."""
        return self.spec.name
