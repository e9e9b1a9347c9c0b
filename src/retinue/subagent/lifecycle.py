"""Notifications about children, published on the bus of whoever delegated. Each start pairs with one end."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.subagent.outcome import Ending

__all__ = ["CallKind", "CallStatus", "ExternalCall", "SubagentEnded", "SubagentStarted"]

CallKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]
CallStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]
"""Both as the Agent Client Protocol has them. Source: its version 1, `ToolKind` and `ToolCallStatus`."""


class SubagentStarted(Struct, frozen=True, kw_only=True):
    """A child was accepted, or a continuable one is at work again. Comes before its end."""

    run_id: str
    """The same for the same run or activation, also after a crash."""
    provider: str
    id: SessionId
    parent: SessionId
    local: bool
    """It runs in this process."""

    def ended(self, outcome: Ending, last_message: str) -> SubagentEnded:
        """The end that pairs with this start."""
        return SubagentEnded(
            run_id=self.run_id,
            provider=self.provider,
            id=self.id,
            parent=self.parent,
            local=self.local,
            outcome=outcome,
            last_message=last_message,
        )


class SubagentEnded(Struct, frozen=True, kw_only=True):
    """How that run or activation ended; pairs with its start by `run_id`."""

    run_id: str
    provider: str
    id: SessionId
    parent: SessionId
    local: bool
    outcome: Ending
    last_message: str


class ExternalCall(Struct, frozen=True, kw_only=True):
    """A child in another program began a tool call of its own, or has got on with it: the call as it stands now.

    Nothing of it is logged, and nothing more is said of it once the step that it belongs to has ended.
    """

    agent: Agent
    turn: int
    step: int
    id: str
    """The program's; the same for all that is said about one call of a step."""
    title: str
    """One line that the program wrote, for people."""
    kind: CallKind
    status: CallStatus

    @property
    def has_ended(self) -> bool:
        """Nothing is done for it any more."""
        return self.status in ("completed", "failed")
