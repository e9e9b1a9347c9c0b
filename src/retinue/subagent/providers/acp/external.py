"""What is configured about a program that can work as a child."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from retinue.agent.agent import Agent
from retinue.base.json import JSONObject
from retinue.host.approvals import Answer
from retinue.subagent.providers.acp.program import EOF_GRACE_S

__all__ = ["DEPTH_VARIABLE", "Approve", "ExternalAgent", "reject"]

DEPTH_VARIABLE = "RETINUE_DELEGATION_DEPTH"
"""Tells a program how many delegations lie between a user and the child for which it works."""

Approve: TypeAlias = Callable[[Agent, JSONObject], Awaitable[Answer]]
"""Whether the program may make the call that it describes, on behalf of that child."""


async def reject(_agent: Agent, _call: JSONObject) -> Answer:
    """Nothing that must be asked for is allowed."""
    return Answer(verb="reject", by="policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAgent:
    """A program that can work as a child. Durations in seconds."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    """All that it sees, except for the depth."""
    cwd: Path | None = None
    """Where it works; in the child's own folder if None."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What must not be repeated of what it writes to stderr."""
    start_timeout_s: float = 60.0
    """Bound of each answer until a prompt can be given."""
    silence_s: float = 3600.0
    """A prompt about which nothing was heard for so long is given up."""
    end_grace_s: float = EOF_GRACE_S
    """From the end of its input to SIGTERM."""
    depth: int = 0
    """How many delegations lie between a user and this process."""
    approve: Approve = reject
