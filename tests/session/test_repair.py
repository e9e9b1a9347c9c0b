"""Closing a log that a process left open."""

from __future__ import annotations

from retinue.base.ids import MessageId, SessionId
from retinue.model.content import AssistantMessage, Text, ToolCall, ToolMessage, UserMessage
from retinue.session.events import (
    AssistantReply,
    Event,
    Payload,
    StepStart,
    ToolReturned,
    ToolStart,
    TurnEnd,
    TurnStart,
)
from retinue.session.folds import Turns
from retinue.session.invariants import violations
from retinue.session.repair import closing_payloads

PROMPT = UserMessage(MessageId("m"), (Text("go"),))
CALLS = AssistantMessage(tuple(ToolCall(f"c{n}", "bash", "{}") for n in range(3)))


def closed(*payloads: Payload) -> list[Event]:
    """The log of `payloads` with what closes it."""
    turns = Turns(SessionId("s"))
    events = [Event(seq, 0, data) for seq, data in enumerate(payloads)]
    for event in events:
        turns.apply(event)
    assert turns.open is not None
    more = closing_payloads(turns.open, detail="gone")
    return events + [Event(len(events) + n, 0, data) for n, data in enumerate(more)]


def test_a_turn_that_is_closed_at_any_point_leaves_a_legal_log() -> None:
    whole = (
        TurnStart(1),
        StepStart(1, 1),
        PROMPT,
        AssistantReply(turn=1, step=1, message=CALLS),
        ToolStart(turn=1, step=1, index=1, call_id="c1", name="bash"),
        ToolReturned(turn=1, step=1, index=0, message=ToolMessage("c0", (Text("done"),))),
    )
    for length in range(1, len(whole) + 1):
        events = closed(*whole[:length])
        assert violations(events, quiescent=True) == []
        assert events[-1].data == TurnEnd(turn=1, reason="interrupted", detail="gone")


def test_what_ran_is_unknown_and_what_did_not_run_is_said_not_to_have_started() -> None:
    events = closed(
        TurnStart(1),
        StepStart(1, 1),
        PROMPT,
        AssistantReply(turn=1, step=1, message=CALLS),
        ToolStart(turn=1, step=1, index=1, call_id="c1", name="bash"),
        ToolReturned(turn=1, step=1, index=0, message=ToolMessage("c0", (Text("done"),))),
    )
    codes = {
        event.data.index: event.data.error.code if event.data.error else None
        for event in events
        if isinstance(event.data, ToolReturned)
    }
    assert codes == {0: None, 1: "TOOL_OUTCOME_UNKNOWN", 2: "TOOL_NOT_STARTED"}
