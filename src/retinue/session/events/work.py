"""What goes on beside a session's own turns: activations of children, other programs, tasks, workflows."""

from __future__ import annotations

from typing import Literal

from retinue.base.ids import SessionId
from retinue.model.content import Usage
from retinue.session.events.logged import Logged

__all__ = [
    "ActivationEnd",
    "ActivationStart",
    "ExternalPrompt",
    "TaskEnded",
    "TaskStarted",
    "WorkflowAgentEnd",
    "WorkflowAgentStart",
    "WorkflowEnd",
    "WorkflowStart",
]


class ActivationStart(Logged, frozen=True):
    """`subagent/activation`: a residency of this continuable child begins, the `epoch`-th."""

    epoch: int


class ActivationEnd(Logged, frozen=True, kw_only=True):
    """`subagent/settled`: that residency ended so; the parent's notice is in the same transaction."""

    epoch: int
    outcome: str
    detail: str | None = None
    usage: Usage | None = None
    parked: int = 0
    """Messages that wait for somebody to resume the child."""
    undelivered: bool = False
    """The parent's session does not exist any more, so nobody was told."""


class ExternalPrompt(Logged, frozen=True, kw_only=True):
    """`external/prompt`: what is new in this step is about to be given to a session of another program."""

    turn: int
    step: int
    session: str
    """Its id there."""


class TaskStarted(Logged, frozen=True, kw_only=True):
    """`task/started`: background work of this session began, in this process alone."""

    task_id: str
    kind: str
    label: str


class TaskEnded(Logged, frozen=True, kw_only=True):
    """`task/ended`: that work is over and its resources are released."""

    task_id: str
    status: Literal["completed", "killed", "failed"]
    detail: str | None = None


class WorkflowStart(Logged, frozen=True, kw_only=True):
    """`tool-workflow/start`: the script of the call at `index` runs, or its rounds do, for the `n`-th time: again from
    the start when a process went on with the call."""

    turn: int
    step: int
    index: int
    name: str
    n: int = 1


class WorkflowAgentStart(Logged, frozen=True, kw_only=True):
    """`tool-workflow/agent-start`: the workflow waits for this child, which it starts or finds again."""

    index: int
    id: SessionId
    label: str
    phase: str | None = None


class WorkflowAgentEnd(Logged, frozen=True, kw_only=True):
    """`tool-workflow/agent-end`: how that child ended."""

    index: int
    id: SessionId
    outcome: str
    detail: str | None = None


class WorkflowEnd(Logged, frozen=True, kw_only=True):
    """`tool-workflow/end`: the script has ended, or the last round, and it waits for no child any more."""

    turn: int
    step: int
    index: int
    outcome: Literal["completed", "failed"]
    detail: str | None = None
