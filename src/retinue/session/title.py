"""What a session is called in listings: the first thing that it was told."""

from __future__ import annotations

from retinue.model.content import UserMessage, text_of
from retinue.session.store import StoredSession

__all__ = ["brief_title", "title"]

_CHARS = 80


def title(stored: StoredSession) -> str:
    """The first thing the session was told, in full; empty if nothing was."""
    first = stored.header.seed_length or 0
    told = (e.data for e in stored.events if e.seq >= first and isinstance(e.data, UserMessage))
    message = next(told, None)
    if message is None:
        message = next((row.delivery.message for row in stored.pending), None)
    return text_of(message.content) if message is not None else ""


def brief_title(text: str) -> str:
    """At most a line of it."""
    line = " ".join(text.split())
    return line if len(line) <= _CHARS else f"{line[: _CHARS - 1]}…"
