"""Small logs and rows for tests of what reads them."""

from retinue.base.ids import MessageId, SessionId
from retinue.model.content import AssistantMessage, Source, Text, ToolCall, ToolMessage, UserMessage
from retinue.session.events import (
    AssistantReply,
    Event,
    Payload,
    StepEnd,
    StepStart,
    ToolReturned,
    ToolStart,
    TurnEnd,
    TurnStart,
)
from retinue.session.rows import Delivery, RowState, StoredRow, Target

SESSION = SessionId("session-1")


def log(*payloads: Payload) -> list[Event]:
    return [Event(seq, 1000 + seq, data) for seq, data in enumerate(payloads)]


def said(id: str, text: str = "Hello.", kind: str = "user", form: str | None = None) -> UserMessage:
    return UserMessage(MessageId(id), (Text(text),), Source(kind, form))


def reply(turn: int, step: int, *calls: str, text: str = "Well.") -> AssistantReply:
    blocks = tuple(ToolCall(id, "look", "{}") for id in calls)
    return AssistantReply(turn=turn, step=step, message=AssistantMessage((Text(text), *blocks)))


def started(turn: int, step: int, index: int, call_id: str, name: str = "look") -> ToolStart:
    return ToolStart(turn=turn, step=step, index=index, call_id=call_id, name=name)


def returned(turn: int, step: int, index: int, call_id: str, text: str = "Seen.") -> ToolReturned:
    return ToolReturned(turn=turn, step=step, index=index, message=ToolMessage(call_id, (Text(text),)))


def ended(turn: int) -> TurnEnd:
    return TurnEnd(turn=turn, reason="completed")


def whole_log() -> list[Event]:
    """Two turns; the first has two steps, and its calls end in the other order."""
    return log(
        TurnStart(1),
        StepStart(1, 1),
        said("m1"),
        reply(1, 1, "a", "b"),
        started(1, 1, 0, "a"),
        started(1, 1, 1, "b"),
        returned(1, 1, 1, "b"),
        returned(1, 1, 0, "a"),
        StepEnd(1, 1),
        StepStart(1, 2),
        said("m2"),
        reply(1, 2),
        StepEnd(1, 2),
        ended(1),
        TurnStart(2),
        StepStart(2, 1),
        said("m3"),
        reply(2, 1),
        StepEnd(2, 1),
        ended(2),
    )


def delivery(
    id: str, *, target: Target = "next-turn", wake: bool = True, kind: str = "user", form: str | None = None
) -> Delivery:
    return Delivery(
        session_id=SESSION, message=said(id, kind=kind, form=form), target=target, wake=wake, accepted_at=1000
    )


def row(
    id: str, state: RowState = "claimed", turn: int | None = None, *, wake: bool = True, parked: bool = False
) -> StoredRow:
    return StoredRow(delivery=delivery(id, wake=wake), order=0, state=state, turn=turn, parked=parked)
