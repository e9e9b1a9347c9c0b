"""An activation of a continuable child, as pure state: where it stands, when it may settle, what its end comes to.

Nothing here awaits or writes. States are derived from what is observed, never stored. Source: behaviour CR-01.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.session.events import Event
from retinue.session.folds import total_usage
from retinue.subagent.outcome import Outcome, accounting_end, last_words, turn_diagnostic, turn_ending

__all__ = ["Residency", "Standing", "activation_outcome", "standing"]

Standing: TypeAlias = Literal["running", "waiting", "settled"]


class Residency(Struct, frozen=True, kw_only=True):
    """What is observed of a resident child at one instant."""

    is_running: bool
    """A turn or maintenance is active."""
    is_runnable: bool
    """A waking message is pending that is not parked."""
    open_children: int
    """Activations of its own children that have not settled."""
    live_tasks: int
    """Background tasks of its own that have not ended."""


def standing(seen: Residency) -> Standing:
    """`running` while it works or has work, `waiting` while only what it started goes on, `settled` otherwise."""
    if seen.is_running or seen.is_runnable:
        return "running"
    return "waiting" if seen.open_children or seen.live_tasks else "settled"


def activation_outcome(events: Sequence[Event], *, first: int, dropped: bool = False) -> Outcome:
    """What one activation comes to: only events from seq `first` on count, so an earlier answer is never repeated.

    The last turn that accounts for work decides; with none it is `completed`. `dropped` says that accepted work was
    withdrawn unrun afterwards: then what completed counts as `aborted`. A failure that is recorded stays. Source:
    behaviour CO-01..CO-06.
    """
    deciding = accounting_end(events, first=first)
    ending = "completed" if deciding is None else turn_ending(deciding)
    return Outcome(
        ending="aborted" if dropped and ending == "completed" else ending,
        output=last_words(events, first=first),
        diagnostic=None if deciding is None else turn_diagnostic(deciding),
        usage=total_usage(events, first),
    )
