"""In a few words: how a stored session stands."""

from __future__ import annotations

from datetime import datetime

from retinue.base.json import JSONObject
from retinue.compose.tree import activation_ending, usage_object
from retinue.session.events import ActivationEnd, ActivationStart, AssistantReply, Event, TurnEnd
from retinue.session.folds import descriptor, total_usage
from retinue.session.store import SessionSummary, StoredSession
from retinue.session.title import title
from retinue.subagent.outcome import turn_ending

__all__ = ["clock_time", "label", "session_object", "state"]


def state(summary: SessionSummary, stored: StoredSession, *, is_owed: bool = False) -> str:
    """`open` while a turn has no end (it works, or its process ended), `waiting` while only what it started goes on.

    Otherwise how its last work ended. `is_owed` says that sessions below it have open work.
    """
    if summary.open_turn is not None:
        return "open"
    made = descriptor(stored.header, stored.events)
    if made is not None and made.mode == "continuable":
        first = stored.header.seed_length or 0
        if any(isinstance(e.data, ActivationStart | ActivationEnd) for e in reversed(stored.events) if e.seq >= first):
            return activation_ending(stored.events, first) or "waiting"
    first = stored.header.seed_length or 0
    ends = (e.data for e in reversed(stored.events) if e.seq >= first and isinstance(e.data, TurnEnd))
    end = next(ends, None)
    if end is None:
        return "waiting" if summary.pending else "new"
    ending = turn_ending(end)
    return "waiting" if is_owed and ending == "completed" else ending


def label(stored: StoredSession) -> str:
    """What its parent called it; empty for a root."""
    made = descriptor(stored.header, stored.events)
    return made.label or "" if made is not None else ""


def last_text(events: list[Event]) -> str:
    """The newest visible text of the model."""
    texts = (e.data.message.text for e in reversed(events) if isinstance(e.data, AssistantReply))
    return next((text for text in texts if text.strip()), "")


def session_object(summary: SessionSummary, stored: StoredSession, *, is_owed: bool = False) -> JSONObject:
    """The session as one JSON object, for `--json`."""
    header = summary.header
    return {
        "id": header.id,
        "parent_id": header.parent_session,
        "label": label(stored) or None,
        "state": state(summary, stored, is_owed=is_owed),
        "title": title(stored),
        "cwd": header.cwd,
        "created_at": header.created_at / 1000,
        "last_event_at": summary.last_event_at / 1000,
        "events": summary.events,
        "open_turn": summary.open_turn,
        "pending": summary.pending,
        "usage": usage_object(total_usage(stored.events, header.seed_length or 0)),
    }


def clock_time(epoch_ms: int) -> str:
    """Local date and time to the second."""
    return datetime.fromtimestamp(epoch_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
