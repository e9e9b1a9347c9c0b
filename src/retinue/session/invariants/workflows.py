"""Workflows in calls: each run is counted, and waits for each of its agents once at a time and to the end."""

from __future__ import annotations

from msgspec import Struct, field

from retinue.base.ids import SessionId
from retinue.session.events import Event, WorkflowAgentEnd, WorkflowAgentStart, WorkflowEnd, WorkflowStart
from retinue.session.invariants.violation import Findings

__all__ = ["Workflows"]


class _Workflow(Struct):
    n: int = 0
    is_open: bool = False
    agents: set[SessionId] = field(default_factory=set[SessionId])
    """Those that it waits for."""


class Workflows:
    """The workflows of one step, by the index of their call."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._all: dict[int, _Workflow] = {}

    def bound(self, event: Event, data: WorkflowStart | WorkflowEnd) -> None:
        """A workflow begins or ends."""
        workflow = self._all.get(data.index, _Workflow())
        if isinstance(data, WorkflowStart):
            if data.n != workflow.n + 1:
                self._found.at(event, "workflow-count", f"n is {data.n}, and {workflow.n + 1} comes next")
            self._all[data.index] = _Workflow(data.n, True)
            return
        if not workflow.is_open:
            self._found.at(event, "workflow-nesting", f"no workflow of call {data.index} is open")
        if workflow.agents:
            self._found.at(event, "workflow-nesting", f"agents have no end: {', '.join(sorted(workflow.agents))}")
        self._all[data.index] = _Workflow(workflow.n)

    def agent(self, event: Event, data: WorkflowAgentStart | WorkflowAgentEnd) -> None:
        """A workflow begins to wait for an agent, or that has ended."""
        workflow = self._all.get(data.index)
        if workflow is None or not workflow.is_open:
            self._found.at(event, "workflow-nesting", f"no workflow of call {data.index} is open")
        elif (data.id in workflow.agents) == isinstance(data, WorkflowAgentStart):
            known = "is waited for already" if data.id in workflow.agents else "is not waited for"
            self._found.at(event, "workflow-agent-once", f"agent {data.id!r} {known}")
        elif isinstance(data, WorkflowAgentStart):
            workflow.agents.add(data.id)
        else:
            workflow.agents.remove(data.id)
