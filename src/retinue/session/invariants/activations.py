"""The activations of a continuable child: one after the other, whole turns in them, and no turn outside them."""

from __future__ import annotations

from retinue.session.events import Event
from retinue.session.invariants.violation import Findings

__all__ = ["Activations"]


class Activations:
    """Where the activations of a log stand while it is read."""

    def __init__(self, found: Findings) -> None:
        self.is_continuable = False
        self._found = found
        self._open: int = 0
        self._epochs: int = 0
        self._unhoused: list[Event] = []
        """Turns of a continuable child outside its activations: fine if a seed ends after them."""

    def start(self, event: Event, epoch: int) -> None:
        """`event` begins the activation of that number."""
        if self._open:
            self._found.at(event, "activation-nesting", f"activation {self._open} is still open")
        elif epoch != self._epochs + 1:
            self._found.at(event, "activation-count", f"its number is {epoch}, and {self._epochs + 1} comes next")
        self._open = self._epochs = epoch

    def start_turn(self, event: Event) -> None:
        """`event` begins a turn."""
        if self.is_continuable and not self._open:
            self._unhoused.append(event)

    def end(self, event: Event, epoch: int, turn: int) -> None:
        """`event` ends the activation of that number while `turn`, or none, is open."""
        if self._open != epoch:
            is_open = f"activation {self._open} is open" if self._open else "no activation is open"
            self._found.at(event, "activation-nesting", f"it belongs to activation {epoch}, but {is_open}")
        elif turn:
            self._found.at(event, "activation-nesting", f"turn {turn} is still open")
        self._open = 0

    def forget_seed(self) -> None:
        """What came before is another session's."""
        self.is_continuable, self._unhoused = False, []

    def check_housed(self) -> None:
        """Every turn stands in an activation."""
        for event in self._unhoused:
            self._found.at(event, "turn-in-activation", "no activation of this continuable child is open")

    def check_closed(self) -> None:
        """No activation is open."""
        if self._open:
            self._found.add(None, "closed", f"activation {self._open} has not settled")
