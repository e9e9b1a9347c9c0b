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
from retinue.tools.secrets import Secrets

__all__ = ["DEPTH_VARIABLE", "UNNAMED", "Approve", "ExternalAgent", "one_line", "reject", "title_of"]

DEPTH_VARIABLE = "RETINUE_DELEGATION_DEPTH"
"""Tells a program how many delegations lie between a user and the child for which it works."""

UNNAMED = "a call"
"""A call for which the program has no words."""

_TITLE_CHARS = 500

Approve: TypeAlias = Callable[[Agent, JSONObject], Awaitable[Answer]]
"""Whether the program may make the call that it describes, on behalf of that child."""


async def reject(_agent: Agent, _call: JSONObject) -> Answer:
    """Nothing that must be asked for is allowed."""
    return Answer(verb="reject", by="policy")


def title_of(call: JSONObject) -> str | None:
    """What the program calls the call, as a line; None if it says nothing."""
    title = call.get("title")
    return (one_line(title, _TITLE_CHARS) or None) if isinstance(title, str) else None


def one_line(text: str, most_chars: int) -> str:
    """What a program wrote, as a line without control characters, cut where it is long."""
    shown = "".join(char if char.isprintable() else " " for char in text[: 4 * most_chars])
    line = " ".join(shown.split())
    return line if len(line) <= most_chars else f"{line[: most_chars - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAgent:
    """A program that can work as a child. Durations in seconds."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    """All that it sees, except for the depth."""
    cwd: Path | None = None
    """Where it works, seen from the child's own folder; there if None."""
    secrets: Secrets = field(default_factory=Secrets, repr=False)
    """What must not be repeated of what it says about its failures, and not be kept of what it asks for."""
    start_timeout_s: float = 60.0
    """Bound of each answer until a prompt can be given."""
    silence_s: float = 3600.0
    """A prompt about which nothing was heard for so long is given up."""
    end_grace_s: float = EOF_GRACE_S
    """From the end of its input to SIGTERM."""
    depth: int = 0
    """How many delegations lie between a user and this process."""
    approve: Approve = reject

    def place(self, folder: Path) -> Path:
        """Where it works for a child whose folder is that one; absolute if that is."""
        return folder if self.cwd is None else folder / self.cwd
