"""Which script belongs to which session: by id, by label, or by what the session was told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from retinue.base.ids import SessionId
from retinue.testing.request import SeenRequest
from retinue.testing.script import Scripted

__all__ = ["Key", "Prompt", "Script", "prompt"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Finds a session by what it was told. Made by `prompt`."""

    pattern: re.Pattern[str]
    first: bool

    def matches(self, seen: SeenRequest) -> bool:
        """A user message, or the first one, holds the pattern."""
        users = seen.users[:1] if self.first else seen.users
        return any(self.pattern.search(text) for text in users)


def prompt(pattern: str, *, first: bool = False) -> Prompt:
    """The session whose user messages (or the `first` of them) match the regular expression, when it first asks."""
    return Prompt(re.compile(pattern), first)


Key: TypeAlias = str | Prompt
"""How a script finds its session: a label or session id, or a prompt."""


@dataclass(slots=True, eq=False)
class Script:
    """The replies of one session, used one per request."""

    key: Key | None
    replies: list[Scripted]
    every: bool = False
    session_id: SessionId | None = None
    used: int = 0

    def add(self, *replies: Scripted) -> None:
        """More replies, after those that are there."""
        self.replies.extend(replies)

    @property
    def name(self) -> str:
        """The script as a reader of a failure knows it."""
        match self.key:
            case None:
                return "the script without a key"
            case Prompt():
                return f"the script for prompt {self.key.pattern.pattern!r}"
            case _:
                return f"the script of {self.key!r}"

    def matches(self, seen: SeenRequest) -> bool:
        """The script may serve the session."""
        match self.key:
            case None:
                return True
            case Prompt():
                return self.key.matches(seen)
            case _:
                return self.key in (seen.label, seen.session_id)

    @property
    def rank(self) -> int:
        """Ids and labels are tried before prompts, and a script without a key last."""
        return 2 if self.key is None else 1 if isinstance(self.key, Prompt) else 0
