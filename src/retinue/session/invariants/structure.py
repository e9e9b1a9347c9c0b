"""The order of a log: turns and their steps, where messages and headers stand, what a seed may hold."""

from __future__ import annotations

from retinue.base.ids import MessageId
from retinue.model.content import UserMessage
from retinue.session.events import (
    ActivationEnd,
    ActivationStart,
    ApprovalAsked,
    ApprovalDecided,
    AssistantReply,
    Descriptor,
    EndSeed,
    Event,
    ExternalPermission,
    ExternalPrompt,
    RequestContext,
    RequestHeaderChange,
    StepEnd,
    StepStart,
    ToolReturned,
    ToolStart,
    TurnEnd,
    TurnResumed,
    TurnStart,
    WorkflowAgentEnd,
    WorkflowAgentStart,
    WorkflowEnd,
    WorkflowStart,
)
from retinue.session.invariants.activations import Activations
from retinue.session.invariants.calls import Step
from retinue.session.invariants.violation import Findings
from retinue.session.invariants.workflows import Workflows

__all__ = ["Log"]


class Log:
    """Where a log stands while it is read."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._activations = Activations(found)
        self.turn = 0
        """The open turn, or 0."""
        self.last_turn = 0
        self._steps = 0
        self._step: Step | None = None
        self._resumed = 0
        self.entered: dict[MessageId, tuple[int, int]] = {}
        """Where each message stands: its seq and its turn, or 0."""
        self._loose: list[Event] = []
        """Messages outside a turn: fine if a seed ends after them."""

    def apply(self, event: Event) -> None:
        """The log goes on with `event`."""
        data = event.data
        match data:
            case TurnStart():
                self._start_turn(event, data.turn)
            case TurnEnd():
                self._end_turn(event, data.turn)
            case TurnResumed():
                if self._in_turn(event, data.turn) and data.n != self._resumed + 1:
                    self._found.at(event, "resumed-count", f"n is {data.n}, and {self._resumed + 1} comes next")
                self._resumed = data.n
            case StepStart():
                self._start_step(event, data)
            case StepEnd():
                step = self._in_step(event, data.turn, data.step)
                if step is not None:
                    step.end(event)
                self._step, self._resumed = None, 0
            case ExternalPrompt() | ExternalPermission():
                self._in_step(event, data.turn, data.step)
            case AssistantReply() | ToolStart() | ToolReturned() | ApprovalAsked() | ApprovalDecided():
                step = self._in_step(event, data.turn, data.step)
                if step is not None:
                    step.apply(event, data)
            case WorkflowStart() | WorkflowEnd():
                step = self._in_step(event, data.turn, data.step)
                if step is not None:
                    step.bound_workflow(event, data)
            case WorkflowAgentStart() | WorkflowAgentEnd():
                workflows = self._step.workflows if self._step is not None else Workflows(self._found)
                workflows.agent(event, data)
            case UserMessage():
                self._enter(event, data.id)
            case RequestHeaderChange() | RequestContext():
                if not self.turn:
                    self._found.at(event, "request-in-turn", "no turn is open")
            case ActivationStart():
                self._activations.start(event, data.epoch)
            case ActivationEnd():
                self._activations.end(event, data.epoch, self.turn)
            case EndSeed():
                if self.turn:
                    self._found.at(event, "seed-closed", f"turn {self.turn} is open, and a seed has only whole turns")
                self._loose = []
                self._activations.forget_seed()
            case Descriptor():
                self._activations.is_continuable = data.mode == "continuable"
            case _:
                pass

    def end(self) -> None:
        """Nothing follows: what only a seed may hold is reported."""
        for event in self._loose:
            self._found.at(event, "message-in-turn", "no turn is open")
        self._activations.check_housed()

    def check_closed(self) -> None:
        """Nothing is open."""
        if self.turn:
            self._found.add(None, "closed", f"turn {self.turn} has no end")
        self._activations.check_closed()

    def _start_turn(self, event: Event, turn: int) -> None:
        if self.turn:
            self._found.at(event, "turn-nesting", f"turn {self.turn} is still open")
        elif turn != self.last_turn + 1:
            self._found.at(event, "turn-count", f"its number is {turn}, and {self.last_turn + 1} comes next")
        self._activations.start_turn(event)
        self.turn = self.last_turn = turn
        self._steps, self._step, self._resumed = 0, None, 0

    def _end_turn(self, event: Event, turn: int) -> None:
        if self._in_turn(event, turn) and self._step is not None:
            self._found.at(event, "turn-nesting", f"step {self._step.number} is still open")
        self.turn, self._step = 0, None

    def _in_turn(self, event: Event, turn: int) -> bool:
        if self.turn != turn:
            is_open = f"turn {self.turn} is open" if self.turn else "no turn is open"
            self._found.at(event, "turn-nesting", f"it belongs to turn {turn}, but {is_open}")
        return self.turn == turn

    def _start_step(self, event: Event, data: StepStart) -> None:
        if self._in_turn(event, data.turn):
            if self._step is not None:
                self._found.at(event, "step-nesting", f"step {self._step.number} is still open")
            elif data.step != self._steps + 1:
                self._found.at(event, "step-count", f"its number is {data.step}, and {self._steps + 1} comes next")
        self._steps, self._step = data.step, Step(data.step, self._found)

    def _in_step(self, event: Event, turn: int, number: int) -> Step | None:
        if not self._in_turn(event, turn):
            return None
        if self._step is None or self._step.number != number:
            is_open = f"step {self._step.number} is open" if self._step is not None else "no step is open"
            self._found.at(event, "step-nesting", f"it belongs to step {number}, but {is_open}")
            return None
        return self._step

    def _enter(self, event: Event, id: MessageId) -> None:
        if id in self.entered:
            self._found.at(event, "message-enters-once", f"message {id!r} is at event {self.entered[id][0]} already")
        else:
            self.entered[id] = (event.seq, self.turn)
        if not self.turn:
            self._loose.append(event)
