"""The least that every log keeps; stands in until the whole set of invariants is there."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.base.ids import SessionId
from retinue.errors import CorruptSession
from retinue.model.content import UserMessage
from retinue.session.events import Event
from retinue.session.folds import Turns
from retinue.session.rows import StoredRow


def violations(events: Sequence[Event], rows: Sequence[StoredRow]) -> list[str]:
    """What is wrong with a log and its rows, in words."""
    turns = Turns(SessionId("-"))
    problems: list[str] = []
    entered: list[str] = []
    for seq, event in enumerate(events):
        if event.seq != seq:
            problems.append(f"event {event.seq} stands at {seq}")
        try:
            turns.apply(event)
        except CorruptSession as error:
            problems.append(str(error))
        if isinstance(event.data, UserMessage):
            entered.append(event.data.id)
    problems.extend(f"message {id} entered twice" for id in set(entered) if entered.count(id) > 1)
    unclaimed = {row.delivery.id for row in rows if row.state != "claimed"}
    problems.extend(f"message {id} is in the log but its row is not claimed" for id in unclaimed & set(entered))
    return problems
