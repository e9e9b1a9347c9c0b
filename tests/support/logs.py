"""A log as short lines, so that a test can state the whole of it."""

from collections.abc import Iterable, Sequence

from retinue.model.content import Text, UserMessage, text_of
from retinue.session.events import (
    AssistantReply,
    Event,
    RequestHeaderChange,
    StepEnd,
    StepStart,
    ToolReturned,
    ToolStart,
    TurnEnd,
    TurnResumed,
    TurnStart,
)

__all__ = ["outline", "shape", "turn_end"]


def outline(events: Iterable[Event], *, headers: bool = False) -> list[str]:
    """One line per event, its type without the family where that is clear. `headers` shows request headers too."""
    lines = [_line(event) for event in events]
    return lines if headers else [line for line in lines if not line.startswith("request/")]


def shape(events: Iterable[Event]) -> list[str]:
    """The bare types."""
    return [event.type for event in events]


def turn_end(events: Sequence[Event]) -> TurnEnd:
    """The end of the turn that the log ends with."""
    end = events[-1].data
    assert isinstance(end, TurnEnd)
    return end


def _line(event: Event) -> str:
    match event.data:
        case TurnStart(turn=turn):
            return f"turn {turn}"
        case TurnResumed(turn=turn, n=n):
            return f"turn {turn} resumed {n}"
        case TurnEnd(turn=turn, reason=reason, cause=cause, error=error, parked=parked):
            facts = [cause or "", error.code if error else "", f"parked={parked}" if parked else ""]
            return " ".join(["end", str(turn), reason, *filter(None, facts)])
        case StepStart(step=step):
            return f"step {step}"
        case StepEnd(step=step):
            return f"step {step} end"
        case UserMessage(content=content):
            return f"user: {text_of(content)}"
        case AssistantReply(message=message, finish=finish, interrupted=interrupted):
            parts = [b.text for b in message.content if isinstance(b, Text)]
            parts += [f"{call.name}()" for call in message.calls]
            marks = [f"[{finish}]"] if finish else []
            return " ".join(["model:", *parts, *marks, *(["[interrupted]"] if interrupted else [])])
        case ToolStart(index=index, name=name):
            return f"start {index} {name}"
        case ToolReturned(index=index, error=error, message=message):
            return f"result {index} {error.code if error else text_of(message.content)}"
        case RequestHeaderChange(reason=reason):
            return f"request/header {reason}"
        case _:
            return event.type
