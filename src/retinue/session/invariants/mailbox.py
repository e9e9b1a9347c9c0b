"""What the rows of a mailbox and its log say of each other."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.base.ids import MessageId
from retinue.session.invariants.structure import Log
from retinue.session.invariants.violation import Findings
from retinue.session.rows import StoredRow

__all__ = ["check_rows"]


def check_rows(found: Findings, log: Log, rows: Iterable[StoredRow], *, quiescent: bool) -> None:
    """Each row is claimed by the turn that its message entered. `log` has been read to its end."""
    seen: set[MessageId] = set()
    for row in rows:
        id = row.delivery.id
        if id in seen:
            found.add(None, "row-once", f"message {id!r} has two rows")
        seen.add(id)
        seq, turn = log.entered.get(id, (None, 0))
        if row.state != "claimed":
            if seq is not None:
                found.add(seq, "entered-is-claimed", f"message {id!r} entered, but its row is {row.state}")
            elif quiescent and row.state == "pending" and row.delivery.wake and not row.parked:
                found.add(None, "closed", f"message {id!r} wakes and is still pending")
        elif row.turn is None or not 0 < row.turn <= log.last_turn:
            found.add(seq, "claimed-by-turn", f"message {id!r} is claimed by turn {row.turn}, which never began")
        elif seq is not None and turn != row.turn:
            found.add(seq, "claimed-by-turn", f"message {id!r} is claimed by turn {row.turn}, but is in turn {turn}")
        elif seq is None and row.turn == log.turn and not row.delivery.is_control:
            found.add(None, "claimed-enters", f"message {id!r} is claimed by turn {row.turn}, but never entered it")
