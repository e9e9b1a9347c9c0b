"""What agents tell the rest of the process: live notifications on the bus. Nothing here is durable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from retinue.model.chunks import Chunk
from retinue.session.mailbox import PendingRow
from retinue.session.rows import Delivery
from retinue.tools.tool import CallKey

if TYPE_CHECKING:
    from retinue.agent.agent import Agent

__all__ = [
    "AgentCreated",
    "AgentDisposed",
    "AgentFailed",
    "CallOutput",
    "ChunkArrived",
    "ChunksWithdrawn",
    "MessageClaimed",
    "MessageDiscarded",
    "MessageInserted",
    "SessionStarted",
    "StartSource",
    "StatusChanged",
    "StopAsked",
    "Stopped",
]

StartSource: TypeAlias = Literal["startup", "resume", "clear", "compact"]


class AgentCreated(Struct, frozen=True):
    """The agent is in the registry. A listener that raises vetoes it."""

    agent: Agent


class AgentDisposed(Struct, frozen=True):
    """The agent left the registry."""

    agent: Agent


class SessionStarted(Struct, frozen=True):
    """The agent's session begins or goes on."""

    agent: Agent
    source: StartSource


class StatusChanged(Struct, frozen=True):
    """The public status is another one now."""

    agent: Agent
    status: Literal["idle", "running"]


class AgentFailed(Struct, frozen=True):
    """Something failed in the agent; once per failure, whether or not the log has it. 0 = outside any turn or step."""

    agent: Agent
    turn: int
    step: int
    error: Exception


class MessageInserted(Struct, frozen=True):
    """A message is pending."""

    agent: Agent
    delivery: Delivery


class MessageDiscarded(Struct, frozen=True):
    """A pending message will never be read."""

    agent: Agent
    row: PendingRow
    reason: str


class MessageClaimed(Struct, frozen=True):
    """A message belongs to a turn now."""

    agent: Agent
    delivery: Delivery
    turn: int


class StopAsked(Struct, frozen=True):
    """The agent and everything below it shall end. Whoever keeps something below it ends that now.

    What takes longer adds a wait for its end: the stop is over after all of them, and nothing starts before.
    """

    agent: Agent
    waits: list[Callable[[], Awaitable[None]]]


class Stopped(Struct, frozen=True):
    """A stop of the agent is over: it may start again."""

    agent: Agent


class CallOutput(Struct, frozen=True):
    """What is new of a call's output while it runs, and after its result for what it left in the background.

    Nothing of it is logged, and it comes as fast as it is made: whoever passes it on bounds it.
    """

    agent: Agent
    key: CallKey
    text: str


class ChunkArrived(Struct, frozen=True):
    """Provisional part of a reply that streams."""

    agent: Agent
    turn: int
    step: int
    attempt: int
    chunk: Chunk


class ChunksWithdrawn(Struct, frozen=True):
    """The chunks of this attempt count for nothing: the request failed, and `error` says how."""

    agent: Agent
    turn: int
    step: int
    attempt: int
    error: Exception
    delay_s: float | None
    """Until the next attempt, or None if there is none."""
