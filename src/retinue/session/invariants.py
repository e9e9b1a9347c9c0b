"""What holds of every log and its mailbox rows, as checks over plain values. Source: behaviour SE-28, IN-13, IN-22.

It judges and repairs nothing: after a violation it takes the log's word and goes on, so one fault is reported once.
Numbers of a log that is still being written may be checked too; `quiescent` adds what holds only when all is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from retinue.base.ids import MessageId, SessionId
from retinue.model.content import ToolCall, UserMessage
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
    SessionHeader,
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
from retinue.session.rows import StoredRow

__all__ = ["SessionRecord", "Violation", "tree_violations", "violations"]


class Violation(Struct, frozen=True):
    """One broken rule. `seq` is the event where it shows, or None where only a row is wrong."""

    seq: int | None
    rule: str
    text: str

    def __str__(self) -> str:
        where = "" if self.seq is None else f"event {self.seq}: "
        return f"{where}{self.text} ({self.rule})"


def violations(events: Sequence[Event], rows: Iterable[StoredRow] = (), *, quiescent: bool = False) -> list[Violation]:
    """Every broken rule, in the order of the log, then of the rows. `rows` are all rows ever sent to the session.

    `quiescent` says that nobody drives the session and that it should owe nothing.
    """
    log = _Log()
    for index, event in enumerate(events):
        if event.seq != index:
            log.report(event, "contiguous", f"it stands at place {index}")
        log.apply(event)
    log.check_rows(rows, quiescent)
    if quiescent:
        log.check_closed()
    return log.found


class SessionRecord(Struct, frozen=True, kw_only=True):
    """One session with all rows ever sent to it."""

    header: SessionHeader
    events: Sequence[Event]
    rows: Sequence[StoredRow]


def tree_violations(records: Iterable[SessionRecord]) -> list[tuple[SessionId, Violation]]:
    """Every broken rule between parents and children, with the child that broke it.

    The settlements in a parent's mailbox are exactly the settled activations of its children, and what a child reported
    in an activation stands before that activation's settlement. Source: behaviour CN-01, CQ-01..05.
    """
    known = {record.header.id: record for record in records}
    found: list[tuple[SessionId, Violation]] = []
    for id, record in known.items():
        parent = known.get(record.header.parent_session or SessionId(""))
        if parent is not None and record.header.origin == "subagent":
            found.extend((id, violation) for violation in _between(parent, record))
    for record in known.values():
        for row in record.rows:
            source = row.delivery.message.source
            sender = source.sender_session_id
            if source.kind == "subagent-settled" and sender is not None and sender not in known:
                text = f"message {row.delivery.id!r} settles a child that does not exist"
                found.append((record.header.id, Violation(None, "settlement-has-child", text)))
    return found


def _between(parent: SessionRecord, child: SessionRecord) -> list[Violation]:
    found: list[Violation] = []
    sent = sorted(
        (row for row in parent.rows if row.delivery.message.source.sender_session_id == child.header.id),
        key=lambda row: row.order,
    )
    orders = {row.delivery.id: row.order for row in sent}
    settled = [row.order for row in sent if row.delivery.message.source.kind == "subagent-settled"]
    ends = 0
    for event in child.events[child.header.seed_length or 0 :]:
        data = event.data
        if isinstance(data, ActivationEnd) and not data.undelivered:
            ends += 1
        elif isinstance(data, ToolReturned) and data.error is None and data.meta:
            order = orders.get(MessageId(str(data.meta.get("message_id"))))
            is_early = order is not None and ends > 0 and len(settled) >= ends and order < settled[ends - 1]
            is_late = order is not None and len(settled) > ends and order > settled[ends]
            if is_early or is_late:
                text = f"its report {data.meta['message_id']!r} is not with activation {ends + 1} in its parent's order"
                found.append(Violation(event.seq, "report-before-settlement", text))
    if len(settled) != ends:
        text = f"{ends} of its activations settled, and its parent has {len(settled)} notices of that"
        found.append(Violation(None, "one-settlement-each", text))
    return found


class _Step(Struct):
    number: int
    calls: tuple[ToolCall, ...] | None = None
    started: set[int] = field(default_factory=set[int])
    returned: set[int] = field(default_factory=set[int])
    asked: dict[int, str] = field(default_factory=dict[int, str])
    """Ids of the questions about calls, by index."""
    decided: dict[int, str] = field(default_factory=dict[int, str])
    workflows: dict[int, _Workflow] = field(default_factory=dict[int, "_Workflow"])
    """By the index of their call."""


class _Workflow(Struct):
    n: int = 0
    is_open: bool = False
    agents: set[SessionId] = field(default_factory=set[SessionId])
    """Those that it waits for."""


class _Log:
    """Where the log stands while it is read."""

    def __init__(self) -> None:
        self.found: list[Violation] = []
        self.turn: int = 0
        self._activation: int = 0
        self._epochs: int = 0
        self._last_turn: int = 0
        self._steps: int = 0
        self._step: _Step | None = None
        self._resumed = 0
        self._entered: dict[MessageId, tuple[int, int]] = {}
        self._loose: list[Event] = []
        """Messages outside a turn: fine if a seed ends after them."""
        self._is_continuable = False
        self._unhoused: list[Event] = []
        """Turns of a continuable child outside its activations: fine if a seed ends after them."""

    def report(self, event: Event, rule: str, text: str) -> None:
        self.found.append(Violation(event.seq, rule, f"{event.type}: {text}"))

    def apply(self, event: Event) -> None:
        data = event.data
        match data:
            case TurnStart():
                self._start_turn(event, data.turn)
            case TurnEnd():
                self._end_turn(event, data.turn)
            case TurnResumed():
                if self._in_turn(event, data.turn) and data.n != self._resumed + 1:
                    self.report(event, "resumed-count", f"n is {data.n}, and {self._resumed + 1} comes next")
                self._resumed = data.n
            case StepStart():
                self._start_step(event, data)
            case StepEnd():
                self._end_step(event, data)
            case AssistantReply():
                step = self._in_step(event, data.turn, data.step)
                if step is not None and step.calls is not None:
                    self.report(event, "one-reply", f"step {step.number} has a reply already")
                if step is not None:
                    step.calls = data.message.calls
            case ExternalPrompt() | ExternalPermission():
                self._in_step(event, data.turn, data.step)
            case ToolStart():
                self._start_call(event, data)
            case ApprovalAsked():
                self._ask(event, data)
            case ApprovalDecided():
                self._decide(event, data)
            case ToolReturned():
                self._return_call(event, data)
            case WorkflowStart() | WorkflowEnd():
                self._bound_workflow(event, data)
            case WorkflowAgentStart() | WorkflowAgentEnd():
                self._workflow_agent(event, data)
            case UserMessage():
                self._enter(event, data.id)
            case RequestHeaderChange() | RequestContext():
                if not self.turn:
                    self.report(event, "request-in-turn", "no turn is open")
            case ActivationStart():
                self._start_activation(event, data.epoch)
            case ActivationEnd():
                self._end_activation(event, data.epoch)
            case EndSeed():
                if self.turn:
                    self.report(event, "seed-closed", f"turn {self.turn} is open, and a seed has only whole turns")
                self._loose = []
                self._is_continuable, self._unhoused = False, []
            case Descriptor():
                self._is_continuable = data.mode == "continuable"
            case _:
                pass

    # Turns and steps.

    def _start_turn(self, event: Event, turn: int) -> None:
        if self.turn:
            self.report(event, "turn-nesting", f"turn {self.turn} is still open")
        elif turn != self._last_turn + 1:
            self.report(event, "turn-count", f"its number is {turn}, and {self._last_turn + 1} comes next")
        if self._is_continuable and not self._activation:
            self._unhoused.append(event)
        self.turn = self._last_turn = turn
        self._steps, self._step, self._resumed = 0, None, 0

    def _end_turn(self, event: Event, turn: int) -> None:
        if self._in_turn(event, turn) and self._step is not None:
            self.report(event, "turn-nesting", f"step {self._step.number} is still open")
        self.turn, self._step = 0, None

    def _in_turn(self, event: Event, turn: int) -> bool:
        if self.turn != turn:
            is_open = f"turn {self.turn} is open" if self.turn else "no turn is open"
            self.report(event, "turn-nesting", f"it belongs to turn {turn}, but {is_open}")
        return self.turn == turn

    def _start_step(self, event: Event, data: StepStart) -> None:
        if self._in_turn(event, data.turn):
            if self._step is not None:
                self.report(event, "step-nesting", f"step {self._step.number} is still open")
            elif data.step != self._steps + 1:
                self.report(event, "step-count", f"its number is {data.step}, and {self._steps + 1} comes next")
        self._steps, self._step = data.step, _Step(data.step)

    def _end_step(self, event: Event, data: StepEnd) -> None:
        step = self._in_step(event, data.turn, data.step)
        if step is not None:
            missing = [i for i in range(len(step.calls or ())) if i not in step.returned]
            if missing:
                self.report(event, "call-has-result", f"calls {missing} of step {step.number} have no result")
        self._step, self._resumed = None, 0

    def _in_step(self, event: Event, turn: int, number: int) -> _Step | None:
        if not self._in_turn(event, turn):
            return None
        if self._step is None or self._step.number != number:
            is_open = f"step {self._step.number} is open" if self._step is not None else "no step is open"
            self.report(event, "step-nesting", f"it belongs to step {number}, but {is_open}")
            return None
        return self._step

    def _start_activation(self, event: Event, epoch: int) -> None:
        if self._activation:
            self.report(event, "activation-nesting", f"activation {self._activation} is still open")
        elif epoch != self._epochs + 1:
            self.report(event, "activation-count", f"its number is {epoch}, and {self._epochs + 1} comes next")
        self._activation = self._epochs = epoch

    def _end_activation(self, event: Event, epoch: int) -> None:
        if self._activation != epoch:
            is_open = f"activation {self._activation} is open" if self._activation else "no activation is open"
            self.report(event, "activation-nesting", f"it belongs to activation {epoch}, but {is_open}")
        elif self.turn:
            self.report(event, "activation-nesting", f"turn {self.turn} is still open")
        self._activation = 0

    def check_closed(self) -> None:
        if self.turn:
            self._row(None, "closed", f"turn {self.turn} has no end")
        if self._activation:
            self._row(None, "closed", f"activation {self._activation} has not settled")

    # Calls and messages.

    def _start_call(self, event: Event, data: ToolStart) -> None:
        step = self._in_step(event, data.turn, data.step)
        if step is None:
            return
        self._match_call(event, step, data)
        if data.index in step.started or data.index in step.returned:
            self.report(event, "call-starts-once", f"call {data.index} has been started or answered before")
        if data.index in step.asked and step.decided.get(data.index) != "allow":
            self.report(event, "held-until-allowed", f"call {data.index} was asked about, and nobody has allowed it")
        step.started.add(data.index)

    def _ask(self, event: Event, data: ApprovalAsked) -> None:
        step = self._in_step(event, data.turn, data.step)
        if step is None:
            return
        self._match_call(event, step, data)
        if data.index in step.asked:
            self.report(event, "asked-once", f"call {data.index} was asked about before")
        if data.index in step.started or data.index in step.returned:
            self.report(event, "asked-before-start", f"call {data.index} has been started or answered before")
        step.asked[data.index] = data.id

    def _decide(self, event: Event, data: ApprovalDecided) -> None:
        step = self._in_step(event, data.turn, data.step)
        if step is None:
            return
        if step.asked.get(data.index) != data.id:
            self.report(event, "decided-after-asked", f"nobody has asked {data.id!r} about call {data.index}")
        if data.index in step.decided:
            self.report(event, "decided-once", f"call {data.index} was decided before")
        if data.index in step.started or data.index in step.returned:
            self.report(event, "decided-while-open", f"call {data.index} has been started or answered before")
        step.decided[data.index] = data.verb

    def _return_call(self, event: Event, data: ToolReturned) -> None:
        step = self._in_step(event, data.turn, data.step)
        if step is None:
            return
        call = self._call(event, step, data.index)
        if call is not None and call.id != data.message.call_id:
            self.report(event, "call-matches", f"call {data.index} has id {call.id!r}, not {data.message.call_id!r}")
        if data.index in step.returned:
            self.report(event, "one-result", f"call {data.index} has a result already")
        step.returned.add(data.index)

    def _match_call(self, event: Event, step: _Step, data: ToolStart | ApprovalAsked) -> None:
        call = self._call(event, step, data.index)
        if call is not None and (call.id, call.name) != (data.call_id, data.name):
            self.report(event, "call-matches", f"call {data.index} is {call.name!r} with id {call.id!r}")

    def _call(self, event: Event, step: _Step, index: int) -> ToolCall | None:
        calls = step.calls or ()
        if 0 <= index < len(calls):
            return calls[index]
        self.report(event, "call-was-asked-for", f"step {step.number} has asked for no call {index}")
        return None

    def _bound_workflow(self, event: Event, data: WorkflowStart | WorkflowEnd) -> None:
        step = self._in_step(event, data.turn, data.step)
        if step is None or self._call(event, step, data.index) is None:
            return
        if data.index in step.returned:
            self.report(event, "workflow-in-call", f"call {data.index} has its result already")
        workflow = step.workflows.setdefault(data.index, _Workflow())
        if isinstance(data, WorkflowStart):
            if data.n != workflow.n + 1:
                self.report(event, "workflow-count", f"n is {data.n}, and {workflow.n + 1} comes next")
            step.workflows[data.index] = _Workflow(data.n, True)
            return
        if not workflow.is_open:
            self.report(event, "workflow-nesting", f"no workflow of call {data.index} is open")
        if workflow.agents:
            self.report(event, "workflow-nesting", f"agents have no end: {', '.join(sorted(workflow.agents))}")
        step.workflows[data.index] = _Workflow(workflow.n)

    def _workflow_agent(self, event: Event, data: WorkflowAgentStart | WorkflowAgentEnd) -> None:
        workflow = self._step.workflows.get(data.index) if self._step is not None else None
        if workflow is None or not workflow.is_open:
            self.report(event, "workflow-nesting", f"no workflow of call {data.index} is open")
        elif (data.id in workflow.agents) == isinstance(data, WorkflowAgentStart):
            known = "is waited for already" if data.id in workflow.agents else "is not waited for"
            self.report(event, "workflow-agent-once", f"agent {data.id!r} {known}")
        elif isinstance(data, WorkflowAgentStart):
            workflow.agents.add(data.id)
        else:
            workflow.agents.remove(data.id)

    def _enter(self, event: Event, id: MessageId) -> None:
        if id in self._entered:
            self.report(event, "message-enters-once", f"message {id!r} is at event {self._entered[id][0]} already")
        else:
            self._entered[id] = (event.seq, self.turn)
        if not self.turn:
            self._loose.append(event)

    # Rows.

    def check_rows(self, rows: Iterable[StoredRow], quiescent: bool) -> None:
        for event in self._loose:
            self.report(event, "message-in-turn", "no turn is open")
        for event in self._unhoused:
            self.report(event, "turn-in-activation", "no activation of this continuable child is open")
        seen: set[MessageId] = set()
        for row in rows:
            id = row.delivery.id
            if id in seen:
                self._row(None, "row-once", f"message {id!r} has two rows")
            seen.add(id)
            seq, turn = self._entered.get(id, (None, 0))
            if row.state != "claimed":
                if seq is not None:
                    self._row(seq, "entered-is-claimed", f"message {id!r} entered, but its row is {row.state}")
                elif quiescent and row.state == "pending" and row.delivery.wake and not row.parked:
                    self._row(None, "closed", f"message {id!r} wakes and is still pending")
            elif row.turn is None or not 0 < row.turn <= self._last_turn:
                self._row(seq, "claimed-by-turn", f"message {id!r} is claimed by turn {row.turn}, which never began")
            elif seq is not None and turn != row.turn:
                self._row(
                    seq, "claimed-by-turn", f"message {id!r} is claimed by turn {row.turn}, but is in turn {turn}"
                )
            elif seq is None and row.turn == self.turn and not row.delivery.is_control:
                self._row(None, "claimed-enters", f"message {id!r} is claimed by turn {row.turn}, but never entered it")

    def _row(self, seq: int | None, rule: str, text: str) -> None:
        self.found.append(Violation(seq, rule, text))
