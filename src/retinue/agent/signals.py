"""What agents tell the rest of the process: live notifications on the bus. Nothing here is durable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from retinue.model.chunks import Chunk
from retinue.session.mailbox import PendingRow
from retinue.session.rows import Delivery

if TYPE_CHECKING:
    from retinue.agent.agent import Agent

__all__ = [
    "AgentCreated",
    "AgentDisposed",
    "AgentFailed",
    "ChunkArrived",
    "ChunksWithdrawn",
    "MessageClaimed",
    "MessageDiscarded",
    "MessageInserted",
    "SessionStarted",
    "StartSource",
    "StatusChanged",
]

StartSource: TypeAlias = Literal["startup", "resume", "clear", "compact"]


@dataclass(frozen=True, slots=True)
class AgentCreated:
    """The agent is in the registry. A listener that raises vetoes it."""

    agent: Agent


@dataclass(frozen=True, slots=True)
class AgentDisposed:
    """The agent left the registry."""

    agent: Agent


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """The agent's session begins or goes on."""

    agent: Agent
    source: StartSource


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """The public status is another one now."""

    agent: Agent
    status: Literal["idle", "running"]


@dataclass(frozen=True, slots=True)
class AgentFailed:
    """Something failed in the agent; once per failure, whether or not the log has it. 0 = outside any turn or step."""

    agent: Agent
    turn: int
    step: int
    error: Exception


@dataclass(frozen=True, slots=True)
class MessageInserted:
    """A message is pending."""

    agent: Agent
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class MessageDiscarded:
    """A pending message will never be read."""

    agent: Agent
    row: PendingRow
    reason: str


@dataclass(frozen=True, slots=True)
class MessageClaimed:
    """A message belongs to a turn now."""

    agent: Agent
    delivery: Delivery
    turn: int


@dataclass(frozen=True, slots=True)
class ChunkArrived:
    """Provisional part of a reply that streams."""

    agent: Agent
    turn: int
    step: int
    attempt: int
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class ChunksWithdrawn:
    """The chunks of this attempt count for nothing: the request failed, and `error` says how."""

    agent: Agent
    turn: int
    step: int
    attempt: int
    error: Exception
    delay_s: float | None
    """Until the next attempt, or None if there is none."""
