"""What a task is to those who look at it, and what its producer gives: plain values, no behaviour of the runtime."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId

__all__ = [
    "Completed",
    "Failed",
    "Hooks",
    "KillAnswer",
    "Killed",
    "Starter",
    "Status",
    "TaskOutcome",
    "TaskRead",
    "TaskSettled",
    "TaskSnapshot",
    "TasksChanged",
]

Status: TypeAlias = Literal["running", "stopping", "completed", "killed", "failed"]
"""The last three are terminal: a task that has one keeps it."""
KillAnswer: TypeAlias = Literal["cancellation-requested", "already-finished"]


class Completed(Struct, frozen=True):
    """The work is done. `output` is the final output of a task that does not stream."""

    output: str = ""
    detail: str | None = None


class Killed(Struct, frozen=True):
    """The work was stopped because somebody asked for it."""

    detail: str | None = None


class Failed(Struct, frozen=True):
    """The work came to nothing; `detail` says why, in one line where possible."""

    detail: str


TaskOutcome: TypeAlias = Completed | Killed | Failed


class Hooks(Struct, frozen=True, kw_only=True):
    """What a producer hands over for work that it has begun."""

    cancel: Callable[[str | None], None]
    """Asks the work to end, with the reason if there is one. Returns at once; may be called again."""
    done: Callable[[], Awaitable[TaskOutcome]]
    """Awaited exactly once, by the task itself. It returns when the work's resources are released, and never raises."""
    read_output: Callable[[], str] | None = None
    """The output since the last read. With it the task is a stream, without it there is a final output only."""


Starter: TypeAlias = Callable[[], Hooks]
"""Begins the work. Synchronous: whatever raises has begun nothing."""


class TaskSnapshot(Struct, frozen=True, kw_only=True):
    """One task at one moment."""

    id: str
    """`<kind>-<n>`, unique among what its owner can name. No secret."""
    kind: str
    label: str
    """Short, for people."""
    status: Status
    detail: str | None = None
    output: str | None = None
    """The final output, once there is one."""
    output_limit: int | None = None
    """Bytes of UTF-8 that any text shown about it may have."""
    owner: SessionId | None = None
    started_at: int
    """Epoch milliseconds."""
    finished_at: int | None = None
    """Epoch milliseconds; set exactly when the status is terminal."""
    is_reported: bool = False
    """The owner knows how it ended, or asked for that end: no notice is needed."""

    @property
    def is_terminal(self) -> bool:
        """It has ended and stays so."""
        return self.finished_at is not None


class TaskRead(Struct, frozen=True):
    """What one read gave."""

    text: str
    task: TaskSnapshot


class TasksChanged(Struct, frozen=True):
    """The tasks that the owner can see changed: one began, is stopping, ended or was removed. For displays.

    Published on the owner's bus. Whoever acts on an end waits for TaskSettled: only then is everything written.
    """

    owner: Agent | None


class TaskSettled(Struct, frozen=True):
    """A task ended, and its end and its notice have their places in the store. Published on the owner's bus."""

    owner: Agent | None
    task: TaskSnapshot
