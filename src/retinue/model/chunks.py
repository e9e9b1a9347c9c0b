"""What a model client says while a reply streams. Chunks are provisional: only the assembled message is logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.model.content import Usage

__all__ = ["CallDelta", "CallStart", "Chunk", "Finish", "FinishReason", "ReasoningDelta", "Sink", "TextDelta", "Used"]

FinishReason: TypeAlias = Literal["stop", "tool-calls", "length", "content-filter"]


class _Chunk(Struct, frozen=True, gc=False):
    pass


class TextDelta(_Chunk, frozen=True, tag="text"):
    """More visible text."""

    text: str


class ReasoningDelta(_Chunk, frozen=True, tag="reasoning"):
    """More reasoning text; a `signature` replaces an earlier one of the same block. `starts` begins another block."""

    text: str
    signature: str | None = None
    starts: bool = False


class CallStart(_Chunk, frozen=True, tag="call"):
    """A tool call begins. `index` is the provider's slot; `id` may be empty or repeat."""

    index: int
    id: str
    name: str


class CallDelta(_Chunk, frozen=True, tag="arguments"):
    """More argument text of the call in slot `index`."""

    index: int
    text: str


class Used(_Chunk, frozen=True, tag="usage"):
    """The request's usage so far; the last one counts."""

    usage: Usage


class Finish(_Chunk, frozen=True, tag="finish"):
    """The provider said why the reply ends. Without it the stream was cut."""

    reason: FinishReason


Chunk: TypeAlias = TextDelta | ReasoningDelta | CallStart | CallDelta | Used | Finish
Sink: TypeAlias = Callable[[Chunk], None]
