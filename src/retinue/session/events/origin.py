"""What a session is from its first moment, and what a child was made from."""

from __future__ import annotations

from typing import Literal

from retinue.base.ids import SessionId
from retinue.session.events.logged import Logged

__all__ = ["DESCRIPTOR_VERSION", "Descriptor", "EndSeed", "SessionHeader", "ToolFilter"]


class SessionHeader(Logged, frozen=True, kw_only=True):
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


class EndSeed(Logged, frozen=True):
    """What came before was given at creation."""


class ToolFilter(Logged, frozen=True):
    """Which inherited tools a child sees."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None


DESCRIPTOR_VERSION = 2
"""Of the descriptors that this version writes and can build children from."""


class Descriptor(Logged, frozen=True, kw_only=True):
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
