"""Stable names in place of what differs from run to run and from machine to machine: ids and paths."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from retinue.base.ids import SessionId

__all__ = ["Names", "session_name"]

_ID = re.compile(r"\b([a-z]+(?:-[a-z]+)*)-([0-9a-f]{32}|[0-9a-f]{24})\b")


def session_name(number: int) -> str:
    """How a session is called in expected files; 0 is the root."""
    return f"session.{number}" if number else "session"


class Names:
    """The names of one performance. The same text always becomes the same, in the order in which texts are given."""

    def __init__(self, sessions: Sequence[SessionId], places: Mapping[str, str]) -> None:
        """`sessions` in the order of their numbers; `places` are paths by name."""
        self._known = {str(id): f"<{session_name(number)}>" for number, id in enumerate(sessions)}
        self._known |= {path: f"<{name}>" for name, path in places.items()}
        self._literal = re.compile("|".join(re.escape(text) for text in sorted(self._known, key=len, reverse=True)))
        self._counts: Counter[str] = Counter()

    def __call__(self, text: str) -> str:
        """`text` without anything that only this run knows."""
        text = self._literal.sub(lambda found: self._known[found.group()], text)
        return _ID.sub(self._numbered, text)

    def _numbered(self, found: re.Match[str]) -> str:
        id, kind = found.group(), found.group(1)
        if id not in self._known:
            self._counts[kind] += 1
            self._known[id] = f"<{kind}.{self._counts[kind]}>"
        return self._known[id]
