"""How a child's work ended and what it said: pure folds of its log.

One closed list of endings serves results, notices and the command line. An ending that is not known counts as a failure
everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from retinue.base.json import JSONObject
from retinue.model.content import Image, InputBlock, Text, Usage
from retinue.session.events import AssistantReply, Event, StepStart, TurnEnd, TurnStart
from retinue.session.folds import total_usage
from retinue.tools.output import clean_text, cut_head

__all__ = [
    "ENDINGS",
    "Ending",
    "Outcome",
    "accounting_end",
    "accounting_end_seq",
    "bounded_diagnostic",
    "last_words",
    "outcome",
    "turn_diagnostic",
    "turn_ending",
]

Ending: TypeAlias = Literal[
    "completed", "max-tokens", "refusal", "aborted", "error", "timeout", "over-budget", "interrupted"
]
ENDINGS: tuple[Ending, ...] = get_args(Ending)
"""Every ending, in the order of the design. Source: architecture, section 5."""

_DIAGNOSTIC_BYTES = 4096
"""Source: behaviour SS-16."""
_CUT = " [cut]"
_LIMIT_ENDINGS: dict[str, Ending] = {"timeout": "timeout", "over-budget": "over-budget"}


class Outcome(Struct, frozen=True, kw_only=True):
    """What a piece of a child's log comes to."""

    ending: Ending
    output: tuple[InputBlock, ...] = ()
    """The child's last words: text and images of its newest reply that has any, whatever the ending."""
    diagnostic: str | None = None
    """Why it did not complete; bounded."""
    usage: Usage = Usage()
    structured: JSONObject | None = None
    """The result that satisfies the schema which was asked for; None if none was, or if it was not delivered."""

    def __post_init__(self) -> None:
        if self.diagnostic is not None:
            msgspec.structs.force_setattr(self, "diagnostic", bounded_diagnostic(self.diagnostic))

    @property
    def text(self) -> str:
        """The text of the output, blocks on lines of their own."""
        return "\n".join(block.text for block in self.output if isinstance(block, Text))


def bounded_diagnostic(text: str) -> str:
    """`text` in at most 4096 bytes of UTF-8; a longer one ends with a mark that says so."""
    data = clean_text(text).encode()
    if len(data) <= _DIAGNOSTIC_BYTES:
        return text
    return cut_head(data, _DIAGNOSTIC_BYTES - len(_CUT)).decode().rstrip() + _CUT


def turn_ending(end: TurnEnd) -> Ending:
    """The ending that a turn's end stands for. Source: behaviour CO-02."""
    match end.reason:
        case "completed" | "max-tokens" | "error" | "interrupted":
            return end.reason
        case "blocked":
            return "refusal"
        case "aborted":
            return _LIMIT_ENDINGS.get(end.detail or "", "aborted") if end.cause == "limit" else "aborted"


def outcome(events: Sequence[Event], *, first: int = 0) -> Outcome:
    """What the events from seq `first` on come to.

    The last turn that accounts for work decides: one that entered a step, or that took input and did not complete. With
    none, nothing was done, which is an `error` for a run that was given a prompt. Source: behaviour IN-43, DR-05.
    """
    deciding = accounting_end(events, first=first)
    usage = total_usage(events, first)
    if deciding is None:
        return Outcome(ending="error", diagnostic="it ended without having done anything", usage=usage)
    return Outcome(
        ending=turn_ending(deciding),
        output=last_words(events, first=first),
        diagnostic=turn_diagnostic(deciding),
        usage=usage,
    )


def accounting_end(events: Sequence[Event], *, first: int = 0) -> TurnEnd | None:
    """The end of the last turn from seq `first` on that accounts for work. Source: behaviour IN-43."""
    seq = accounting_end_seq(events, first=first)
    end = events[seq].data if seq >= 0 else None
    return end if isinstance(end, TurnEnd) else None


def accounting_end_seq(events: Sequence[Event], *, first: int = 0) -> int:
    """Where that end stands, or -1 if no such turn has ended."""
    deciding = -1
    has_step = False
    for event in events:
        if event.seq < first:
            continue
        match event.data:
            case TurnStart():
                has_step = False
            case StepStart():
                has_step = True
            case TurnEnd() as end if has_step or end.reason != "completed":
                deciding = event.seq
            case _:
                pass
    return deciding


def turn_diagnostic(end: TurnEnd) -> str | None:
    """Why the turn did not complete, in one line."""
    if end.error is not None:
        return f"{end.error.code}: {end.error.message}"
    return end.detail


def last_words(events: Sequence[Event], *, first: int = 0) -> tuple[InputBlock, ...]:
    """Text and images of the newest reply that has any; reasoning and tool calls never leave the child."""
    for event in reversed(events):
        if event.seq < first:
            break
        if type(event.data) is AssistantReply:
            blocks = tuple(b for b in event.data.message.content if isinstance(b, Text | Image) and _shows(b))
            if blocks:
                return blocks
    return ()


def _shows(block: InputBlock) -> bool:
    return isinstance(block, Image) or bool(block.text.strip())
