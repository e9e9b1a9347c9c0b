"""The calls of one step: each was asked for, is held while it is asked about, starts once and has one result."""

from __future__ import annotations

from retinue.model.content import ToolCall
from retinue.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantReply,
    Event,
    ToolReturned,
    ToolStart,
    WorkflowEnd,
    WorkflowStart,
)
from retinue.session.invariants.violation import Findings
from retinue.session.invariants.workflows import Workflows

__all__ = ["Step"]


class Step:
    """An open step and what became of its calls, by their index."""

    def __init__(self, number: int, found: Findings) -> None:
        self.number = number
        self.workflows = Workflows(found)
        self._found = found
        self._calls: tuple[ToolCall, ...] | None = None
        self._begun: set[int] = set()
        """Started or answered."""
        self._returned: set[int] = set()
        self._asked: dict[int, str] = {}
        """Ids of the questions about calls."""
        self._decided: dict[int, str] = {}

    def apply(
        self, event: Event, data: AssistantReply | ToolStart | ToolReturned | ApprovalAsked | ApprovalDecided
    ) -> None:
        """The step goes on with `event`, whose payload is `data`."""
        match data:
            case AssistantReply():
                if self._calls is not None:
                    self._found.at(event, "one-reply", f"step {self.number} has a reply already")
                self._calls = data.message.calls
            case ToolStart():
                self._start(event, data)
            case ToolReturned():
                self._return(event, data)
            case ApprovalAsked():
                self._ask(event, data)
            case ApprovalDecided():
                self._decide(event, data)

    def end(self, event: Event) -> None:
        """`event` ends the step: every call has its result."""
        missing = [i for i in range(len(self._calls or ())) if i not in self._returned]
        if missing:
            self._found.at(event, "call-has-result", f"calls {missing} of step {self.number} have no result")

    def bound_workflow(self, event: Event, data: WorkflowStart | WorkflowEnd) -> None:
        """The workflow of one of the calls begins or ends."""
        if self._call(event, data.index) is None:
            return
        if data.index in self._returned:
            self._found.at(event, "workflow-in-call", f"call {data.index} has its result already")
        self.workflows.bound(event, data)

    def _start(self, event: Event, data: ToolStart) -> None:
        self._match(event, data)
        self._check_unbegun(event, "call-starts-once", data.index)
        if data.index in self._asked and self._decided.get(data.index) != "allow":
            self._found.at(event, "held-until-allowed", f"call {data.index} was asked about, and nobody has allowed it")
        self._begun.add(data.index)

    def _ask(self, event: Event, data: ApprovalAsked) -> None:
        self._match(event, data)
        if data.index in self._asked:
            self._found.at(event, "asked-once", f"call {data.index} was asked about before")
        self._check_unbegun(event, "asked-before-start", data.index)
        self._asked[data.index] = data.id

    def _decide(self, event: Event, data: ApprovalDecided) -> None:
        if self._asked.get(data.index) != data.id:
            self._found.at(event, "decided-after-asked", f"nobody has asked {data.id!r} about call {data.index}")
        if data.index in self._decided:
            self._found.at(event, "decided-once", f"call {data.index} was decided before")
        self._check_unbegun(event, "decided-while-open", data.index)
        self._decided[data.index] = data.verb

    def _return(self, event: Event, data: ToolReturned) -> None:
        call = self._call(event, data.index)
        if call is not None and call.id != data.message.call_id:
            self._found.at(event, "call-matches", f"call {data.index} has id {call.id!r}, not {data.message.call_id!r}")
        if data.index in self._returned:
            self._found.at(event, "one-result", f"call {data.index} has a result already")
        self._returned.add(data.index)
        self._begun.add(data.index)

    def _check_unbegun(self, event: Event, rule: str, index: int) -> None:
        if index in self._begun:
            self._found.at(event, rule, f"call {index} has been started or answered before")

    def _match(self, event: Event, data: ToolStart | ApprovalAsked) -> None:
        call = self._call(event, data.index)
        if call is not None and (call.id, call.name) != (data.call_id, data.name):
            self._found.at(event, "call-matches", f"call {data.index} is {call.name!r} with id {call.id!r}")

    def _call(self, event: Event, index: int) -> ToolCall | None:
        calls = self._calls or ()
        if 0 <= index < len(calls):
            return calls[index]
        self._found.at(event, "call-was-asked-for", f"step {self.number} has asked for no call {index}")
        return None
