"""A broken rule, and how those of one log are collected."""

from __future__ import annotations

from msgspec import Struct

from retinue.session.events import Event

__all__ = ["Findings", "Violation"]


class Violation(Struct, frozen=True):
    """One broken rule. `seq` is the event where it shows, or None where only a row is wrong."""

    seq: int | None
    rule: str
    text: str

    def __str__(self) -> str:
        where = "" if self.seq is None else f"event {self.seq}: "
        return f"{where}{self.text} ({self.rule})"


class Findings:
    """The violations of one log, in the order in which they were found."""

    __slots__ = ("all",)

    def __init__(self) -> None:
        self.all: list[Violation] = []

    def at(self, event: Event, rule: str, text: str) -> None:
        """The event breaks `rule`."""
        self.all.append(Violation(event.seq, rule, f"{event.type}: {text}"))

    def add(self, seq: int | None, rule: str, text: str) -> None:
        """A row breaks `rule`, or what the log has come to."""
        self.all.append(Violation(seq, rule, text))
