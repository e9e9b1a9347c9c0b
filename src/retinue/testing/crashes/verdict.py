"""What may never have happened on the way to an end state, whatever that is: judged by the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from retinue.base.ids import SessionId
from retinue.testing.crashes.journal import Moment
from retinue.testing.crashes.state import State

__all__ = ["bodies", "doubled", "needless"]


def needless(before: State, after: State, journal: Sequence[Moment], life: int) -> Iterator[str]:
    """Requests of this process for sessions that had nothing to do when it began, and got nothing to do."""
    asked = Counter(m.session_id for m in journal if m.life == life and m.point.occasion == "at model request")
    for id in before.records:
        is_done = id not in before.owing and before.last_turn(id) == after.last_turn(id) > 0
        if is_done and asked[id]:
            yield f"{after.path(id)}: it had ended, and process {life} asked the model for it {asked[id]} times"


def doubled(after: State, journal: Sequence[Moment]) -> Iterator[str]:
    """Calls that were made twice although they may not be, or that made something else the second time."""
    starts: Counter[tuple[str, str, str]] = Counter()
    made: dict[tuple[str, str, str], dict[str, str]] = {}
    for moment in journal:
        key = (moment.session_id, moment.point.tool, moment.call)
        if moment.point.occasion == "at the start of" and moment.effect == "outside":
            starts[key] += 1
        elif moment.point.occasion == "at the end of" and moment.effect == "rows":
            ids = dict(moment.ids)
            if made.setdefault(key, ids) != ids:
                yield f"{_call(after, key)} was made again and is another one now: {made[key]}, then {ids}"
    yield from (f"{_call(after, key)} ran {count} times" for key, count in starts.items() if count > 1)


def _call(state: State, key: tuple[str, str, str]) -> str:
    session_id, tool, call = key
    return f"{state.path(SessionId(session_id))}: the call of {tool} in {call}"


def bodies(after: State, journal: Sequence[Moment]) -> dict[str, int]:
    """How often each outside tool of each session began."""
    return dict(
        Counter(
            f"{after.path(SessionId(moment.session_id))} {moment.point.tool}"
            for moment in journal
            if moment.point.occasion == "at the start of" and moment.effect == "outside"
        )
    )
