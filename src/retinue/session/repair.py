"""What an open log needs to be balanced: results for calls that have none, the end of the step, the end of the turn.

Pure. Used where an open turn is closed as `interrupted` instead of going on, and by readers that balance a copy.
Source: behaviour SE-25, SE-27.
"""

from __future__ import annotations

from collections.abc import Collection

from retinue.model.content import Text, ToolMessage
from retinue.session.events import ErrorRecord, Payload, StepEnd, ToolReturned, TurnEnd
from retinue.session.folds import OpenStep, OpenTurn

__all__ = ["NOT_STARTED", "OUTCOME_UNKNOWN", "closing_payloads", "missing_result"]

OUTCOME_UNKNOWN = ErrorRecord(
    "TOOL_OUTCOME_UNKNOWN",
    "the process ended while this call ran; it may have had its effect, wholly, in part or not at all",
)
NOT_STARTED = ErrorRecord(
    "TOOL_NOT_STARTED", "the process ended before this call started; it had no effect, call it again if needed"
)


def missing_result(turn: int, step: OpenStep, index: int, *, may_have_begun: bool = False) -> ToolReturned:
    """The result of a call whose process ended: unknown if its outside body was about to run, else not started.

    `may_have_begun` says that a call which logs no start may have had its effect all the same.
    """
    assert step.reply is not None
    error = OUTCOME_UNKNOWN if may_have_begun or index in step.started else NOT_STARTED
    call = step.reply.calls[index]
    return ToolReturned(
        turn=turn,
        step=step.number,
        index=index,
        message=ToolMessage(call.id, (Text(f"Error: {error.message}"),), is_error=True),
        error=error,
    )


def closing_payloads(turn: OpenTurn, *, detail: str, begun: Collection[int] = (), parked: int = 0) -> list[Payload]:
    """What closes the turn as `interrupted`, in order. `detail` says why it does not go on.

    `begun` are indexes of calls that may have had an effect without a logged start, `parked` how many messages wait.
    """
    payloads: list[Payload] = []
    step = turn.step
    if step is not None:
        payloads.extend(
            missing_result(turn.number, step, index, may_have_begun=index in begun) for index in step.missing
        )
        payloads.append(StepEnd(turn.number, step.number))
    payloads.append(TurnEnd(turn=turn.number, reason="interrupted", detail=detail, parked=parked))
    return payloads
