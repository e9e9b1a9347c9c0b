"""What a host is shown of agents and of what they sent: folds of logs and rows, read from the store alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from retinue.base.ids import SessionId
from retinue.model.content import InputBlock, Text, text_of
from retinue.session.events import ActivationEnd, ActivationStart, Event
from retinue.session.folds import descriptor
from retinue.session.rows import StoredRow
from retinue.session.store import StoredSession
from retinue.subagent.outcome import last_words

__all__ = ["NOTICES", "AgentView", "Notice", "notice_of", "spoken", "view_of"]

NOTICES = {"subagent-settled": "settlement", "subagent-report": "report"}
"""What a child sends upwards, by the kind of its source."""


class AgentView(Struct, frozen=True, kw_only=True):
    """One agent as it stands."""

    agent_id: SessionId
    label: str
    parent_id: SessionId | None
    folder: str | None
    state: Literal["working", "ended"]
    """`ended` = it owes nothing, and a message starts it again."""
    settlements: int
    """How often it has ended: a number that grows by one with each settlement."""
    outcome: str | None = None
    """How its latest work ended; null while it works."""
    reason: str | None = None
    """Why that was not `completed`."""
    text: str | UnsetType = UNSET
    """Its last words of that work."""


class Notice(Struct, frozen=True, kw_only=True):
    """Something that an agent sent to whoever started it."""

    agent_id: SessionId
    kind: str
    """`settlement` or `report`."""
    text: str
    at_ms: int
    """Epoch milliseconds."""


def view_of(stored: StoredSession, *, is_working: bool, with_text: bool = False) -> AgentView:
    """The agent whose session is `stored`. `with_text` gives its last words too, once it has ended."""
    made = descriptor(stored.header, stored.events)
    first, ends = _activations(stored.events, stored.header.seed_length or 0)
    end = None if is_working or not ends else ends[-1]
    return AgentView(
        agent_id=stored.header.id,
        label=(made.label if made is not None else None) or "",
        parent_id=stored.header.parent_session,
        folder=stored.header.cwd,
        state="working" if is_working else "ended",
        settlements=len(ends),
        outcome=None if end is None else end.outcome,
        reason=None if end is None else end.detail,
        text=spoken(last_words(stored.events, first=first)) if with_text and not is_working else UNSET,
    )


def _activations(events: Sequence[Event], first: int) -> tuple[int, list[ActivationEnd]]:
    """The seq at which the newest activation from seq `first` on starts, and the end of each."""
    ends: list[ActivationEnd] = []
    for event in events[first:]:
        match event.data:
            case ActivationStart():
                first = event.seq
            case ActivationEnd() as end:
                ends.append(end)
            case _:
                pass
    return first, ends


def spoken(blocks: tuple[InputBlock, ...]) -> str:
    """The text of `blocks`; a word in the place of what is none."""
    return "\n".join(block.text if isinstance(block, Text) else "[image]" for block in blocks)


def notice_of(row: StoredRow) -> Notice | None:
    """What the row says to a host; None if that is nothing."""
    message = row.delivery.message
    kind, sender = NOTICES.get(message.source.kind), message.source.sender_session_id
    if kind is None or sender is None:
        return None
    return Notice(agent_id=SessionId(sender), kind=kind, text=text_of(message.content), at_ms=row.delivery.accepted_at)
