"""What a session is called in listings: the first thing that it was told."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.model.content import InputBlock, Text, UserMessage
from retinue.session.store import StoredSession

__all__ = ["brief_title", "opening", "title"]

_CHARS = 80


def title(stored: StoredSession) -> str:
    """The first thing the session was told, in full; empty if nothing was."""
    first = stored.header.seed_length or 0
    told = (e.data for e in stored.events if e.seq >= first and isinstance(e.data, UserMessage))
    message = next(told, None)
    if message is None:
        message = next((row.delivery.message for row in stored.pending if not row.delivery.is_control), None)
    return opening(message.content) if message is not None else ""


def opening(content: Iterable[InputBlock]) -> str:
    """The first text in it that says something; what comes with a task, such as a file, is no part of its name."""
    return next((block.text for block in content if isinstance(block, Text) and block.text.strip()), "")


def brief_title(text: str) -> str:
    """At most a line of it."""
    line = " ".join(text.split())
    return line if len(line) <= _CHARS else f"{line[: _CHARS - 1]}…"
