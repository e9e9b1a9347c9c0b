"""What a scripted model answers, as plain values: text, calls, failures, pauses, and values taken from the request.

A reply is a sequence of acts that ends once. `text`, `calls`, `truncated`, `refuse`, `cut` and `fail` make one, `hold`
and `optional` change one, and where a value depends on what was asked a function of the request stands in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast

from retinue.base.json import JSON
from retinue.errors import ModelError
from retinue.model.chunks import Chunk
from retinue.model.content import Usage
from retinue.testing.gate import Gate
from retinue.testing.request import SeenRequest

__all__ = [
    "Act",
    "Call",
    "Cut",
    "Emit",
    "End",
    "Fail",
    "Hold",
    "Live",
    "LiveText",
    "Reply",
    "Say",
    "Scripted",
    "call",
    "calls",
    "cut",
    "fail",
    "hold",
    "optional",
    "refuse",
    "text",
    "truncated",
]

LiveText: TypeAlias = str | Callable[[SeenRequest], str]
Live: TypeAlias = "JSON | Callable[[SeenRequest], JSON] | Mapping[str, Live] | list[Live]"
"""A JSON value, or one with functions of the request anywhere in it."""

DEFAULT_USAGE = Usage(input_tokens=100, output_tokens=10, requests=1)


@dataclass(frozen=True, slots=True)
class Say:
    """Streams text: visible, or reasoning."""

    text: LiveText
    is_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """Streams one tool call. `arguments` is the raw text or an object that becomes it."""

    name: str
    arguments: LiveText | Mapping[str, Live]
    id: str | None = None
    """The provider's call id; a fresh one if None."""


@dataclass(frozen=True, slots=True)
class Emit:
    """Streams this chunk as it is."""

    chunk: Chunk


@dataclass(frozen=True, slots=True)
class Hold:
    """Streams nothing until the gate is open."""

    gate: Gate


@dataclass(frozen=True, slots=True)
class Fail:
    """The request fails. Fields as in ModelError."""

    kind: str
    message: str
    status: int | None = None
    retry_after_s: float | None = None

    def error(self) -> ModelError:
        """What the client raises."""
        return ModelError(self.kind, self.message, status=self.status, retry_after_s=self.retry_after_s)


@dataclass(frozen=True, slots=True)
class Cut:
    """The stream ends without a finish reason, as when a connection breaks."""


Act: TypeAlias = Say | Call | Emit | Hold
End: TypeAlias = Literal["stop", "tool-calls", "length", "content-filter"] | Fail | Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer to one model request."""

    acts: tuple[Act, ...]
    end: End
    usage: Usage | None = DEFAULT_USAGE
    """Told right before the end of an answered request; None = the provider says nothing about it."""
    is_optional: bool = False
    """The run may end without having asked for it."""

    def hold_after(self, gate: Gate) -> Reply:
        """This reply, but its end waits for the gate after everything was streamed."""
        return replace(self, acts=(*self.acts, Hold(gate)))

    def then(self, later: Reply) -> Reply:
        """One reply that streams this and then `later`, with the end of `later`."""
        return replace(later, acts=(*self.acts, *later.acts), is_optional=self.is_optional or later.is_optional)

    def using(self, usage: Usage | None) -> Reply:
        """This reply with another usage."""
        return replace(self, usage=usage)


Scripted: TypeAlias = Reply | Callable[[SeenRequest], Reply]
"""A reply, or a function that makes it from the request when that arrives."""


def _said(content: LiveText, reasoning: LiveText | None = None) -> tuple[Act, ...]:
    thought: tuple[Act, ...] = () if reasoning is None else (Say(reasoning, is_reasoning=True),)
    return (*thought, Say(content)) if content else thought


def text(content: LiveText, *, reasoning: LiveText | None = None) -> Reply:
    """The model says `content` and wants no tool."""
    return Reply(acts=_said(content, reasoning), end="stop")


def call(name: str, /, *, raw: LiveText | None = None, wire_id: str | None = None, **arguments: Live) -> Call:
    """One tool call, for `calls`. `raw` is argument text as the model wrote it, valid JSON or not."""
    return Call(name, arguments if raw is None else raw, wire_id)


def calls(*wanted: Call, text: LiveText = "", reasoning: LiveText | None = None) -> Reply:
    """The model asks for tools, after `text` if there is some."""
    return Reply(acts=(*_said(text, reasoning), *wanted), end="tool-calls")


def truncated(content: LiveText, *wanted: Call) -> Reply:
    """The reply hits its token ceiling; of the calls it had begun none counts."""
    return Reply(acts=(*_said(content), *wanted), end="length")


def refuse(content: LiveText = "") -> Reply:
    """The model declines to answer."""
    return Reply(acts=_said(content), end="content-filter")


def cut(content: LiveText = "") -> Reply:
    """The stream breaks off after `content`; the client reports a transport failure."""
    return Reply(acts=_said(content), end=Cut())


def fail(
    kind: str, message: str | None = None, *, status: int | None = None, retry_after_s: float | None = None
) -> Reply:
    """The request fails. `kind` as in ModelError. To fail after some text: `text("…").then(fail(…))`."""
    return Reply(acts=(), end=Fail(kind, message or f"scripted failure: {kind}", status, retry_after_s))


def hold(gate: Gate, then: Reply) -> Reply:
    """`then`, once the gate is open; nothing is streamed before."""
    return replace(then, acts=(Hold(gate), *then.acts))


def optional(reply: Reply) -> Reply:
    """`reply`, which the run may leave unused."""
    return replace(reply, is_optional=True)


def live_value(value: Live, request: SeenRequest) -> JSON:
    """`value` with every function in it replaced by what it answers for `request`."""
    if callable(value):
        return value(request)
    if isinstance(value, Mapping):
        return {key: live_value(item, request) for key, item in cast("Mapping[str, Live]", value).items()}
    if isinstance(value, list):
        return [live_value(item, request) for item in cast("list[Live]", value)]
    return value


def live_text(value: LiveText, request: SeenRequest) -> str:
    """`value`, or what it answers for `request`."""
    return value if isinstance(value, str) else value(request)
