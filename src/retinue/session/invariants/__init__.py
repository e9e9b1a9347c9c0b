"""What holds of every log and its mailbox rows, as checks over plain values. Source: behaviour SE-28, IN-13, IN-22.

It judges and repairs nothing: after a violation it takes the log's word and goes on, so one fault is reported once.
Numbers of a log that is still being written may be checked too; `quiescent` adds what holds only when all is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from retinue.session.events import Event
from retinue.session.invariants.family import tree_violations
from retinue.session.invariants.mailbox import check_rows
from retinue.session.invariants.structure import Log
from retinue.session.invariants.violation import Findings, Violation
from retinue.session.rows import StoredRow

__all__ = ["Violation", "tree_violations", "violations"]


def violations(events: Sequence[Event], rows: Iterable[StoredRow] = (), *, quiescent: bool = False) -> list[Violation]:
    """Every broken rule, in the order of the log, then of the rows. `rows` are all rows ever sent to the session.

    `quiescent` says that nobody drives the session and that it should owe nothing.
    """
    found = Findings()
    log = Log(found)
    for index, event in enumerate(events):
        if event.seq != index:
            found.at(event, "contiguous", f"it stands at place {index}")
        log.apply(event)
    log.end()
    check_rows(found, log, rows, quiescent=quiescent)
    if quiescent:
        log.check_closed()
    return found.all
