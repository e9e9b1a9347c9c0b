"""What may never happen on the way is noticed, and what may is not."""

from __future__ import annotations

from pathlib import Path

from retinue.base.ids import SessionId
from retinue.session.events import Event, SessionHeader, TurnEnd, TurnStart
from retinue.session.store import SessionRecord
from retinue.testing.crashes.journal import Moment
from retinue.testing.crashes.points import KillPoint, Occasion
from retinue.testing.crashes.state import State
from retinue.testing.crashes.verdict import bodies, doubled, needless

ROOT = SessionId("root")


def state(turns: int, *, owes: bool = False) -> State:
    """A database with one session of so many whole turns."""
    payloads = [data for n in range(1, turns + 1) for data in (TurnStart(n), TurnEnd(turn=n, reason="completed"))]
    events = [Event(seq, 0, data) for seq, data in enumerate(payloads)]
    record = SessionRecord(header=SessionHeader(id=ROOT, created_at=0), events=events, rows=())
    return State([record], [ROOT] if owes else [], Path("folder"))


def request(life: int) -> Moment:
    return Moment(life=life, point=KillPoint("at model request", 1, "root"), session_id=ROOT)


def moment(life: int, occasion: Occasion, effect: str, call: str = "c1", **ids: str) -> Moment:
    point = KillPoint(occasion, 1, "root", "t")
    return Moment(life=life, point=point, session_id=ROOT, call=call, effect=effect, ids=ids)


def test_a_request_for_a_session_that_had_ended_is_needless() -> None:
    assert list(needless(state(2), state(2), [request(1)], 1)) == [
        "root: it had ended, and process 1 asked the model for it 1 times"
    ]


def test_a_request_for_a_session_with_work_or_of_another_process_is_not() -> None:
    assert not list(needless(state(2), state(3), [request(2)], 2))
    assert not list(needless(state(1, owes=True), state(1), [request(2)], 2))
    assert not list(needless(state(2), state(2), [request(1)], 2))


def test_an_outside_call_that_runs_twice_is_noticed() -> None:
    once, again = moment(1, "at the start of", "outside"), moment(2, "at the start of", "outside")
    assert list(doubled(state(1), [once, again])) == ["root: the call of t in c1 ran 2 times"]
    assert not list(doubled(state(1), [once, moment(2, "at the start of", "outside", "c2")]))
    assert bodies(state(1), [once, again]) == {"root t": 2}


def test_a_call_that_writes_rows_may_run_again_and_must_make_the_same() -> None:
    start = moment(1, "at the start of", "rows")
    made, same = (moment(life, "at the end of", "rows", message_id="a") for life in (1, 2))
    other = moment(2, "at the end of", "rows", message_id="b")
    assert not list(doubled(state(1), [start, made, start, same]))
    assert list(doubled(state(1), [made, other])) == [
        "root: the call of t in c1 was made again and is another one now: {'message_id': 'a'}, then {'message_id': 'b'}"
    ]
