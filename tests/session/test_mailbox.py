"""The mailbox in memory: nothing is lost or doubled, order is kept, and claims take what the rules say."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from msgspec.structs import replace

from retinue.base.ids import MessageId
from retinue.session.mailbox import Mailbox, PendingRow
from retinue.session.rows import Delivery, Kind, StoredRow, Target
from tests.session.logs import delivery

KINDS = st.sampled_from(
    [
        ("user", None),
        ("coordinator", "relay"),
        ("subagent-report", "relay"),
        ("subagent-settled", "notice"),
        ("plugin", "notice"),
        ("plugin", None),
        ("runtime", "notice"),
    ]
)
TARGETS: st.SearchStrategy[Target] = st.sampled_from(["next-turn", "next-step"])


def ids(rows: tuple[PendingRow, ...] | list[PendingRow]) -> list[str]:
    return [row.id for row in rows]


def is_notice(row: PendingRow) -> bool:
    source = row.delivery.message.source
    return source.kind == "subagent-settled" or (source.kind, source.form) == ("plugin", "notice")


def stored(row: PendingRow) -> StoredRow:
    assert row.order is not None
    return StoredRow(delivery=row.delivery, order=row.order, parked=row.parked)


class MailboxMachine(RuleBasedStateMachine):
    """Drives a mailbox as transactions do: rows join at once, and get their order when the store gives it."""

    reserved = Bundle("reserved")

    @initialize()
    def begin(self) -> None:
        self.mailbox = Mailbox()
        self.count = 0
        self.uncommitted: deque[tuple[MessageId, bool, MessageId | None]] = deque()
        self.orders: dict[MessageId, int] = {}
        self.pending: set[str] = set()
        self.held: set[str] = set()
        self.gone: set[str] = set()
        self.orders_given: dict[str, Kind] = {}

    def new(self, target: Target, wake: bool, kind: tuple[str, str | None]) -> Delivery:
        self.count += 1
        return delivery(f"m{self.count}", target=target, wake=wake, kind=kind[0], form=kind[1])

    def rows(self) -> list[PendingRow]:
        return [*self.mailbox.next_step, *self.mailbox.next_turn]

    @rule(target_=TARGETS, wake=st.booleans(), kind=KINDS, prepend=st.booleans())
    def add(self, target_: Target, wake: bool, kind: tuple[str, str | None], prepend: bool) -> None:
        new = self.new(target_, wake, kind)
        self.mailbox.add(new, prepend=prepend)
        self.uncommitted.append((new.id, prepend, None))
        self.pending.add(new.id)
        line = self.mailbox.next_turn if target_ == "next-turn" else self.mailbox.next_step
        assert line[0 if prepend else -1].delivery is new

    @rule(kind=st.sampled_from(["interrupt", "stop"]))
    def order(self, kind: Kind) -> None:
        self.count += 1
        self.orders_given[f"o{self.count}"] = kind
        before = self.rows()
        self.mailbox.add(replace(delivery(f"o{self.count}", wake=False), kind=kind), order=None)
        assert self.rows() == before

    @rule(kind=st.sampled_from(["interrupt", "stop"]))
    def answer(self, kind: Kind) -> None:
        before = self.rows()
        rows = self.mailbox.controls(kind)
        assert ids(rows) == [id for id, given in self.orders_given.items() if given == kind]
        self.mailbox.claimed(rows)
        self.orders_given = {id: given for id, given in self.orders_given.items() if given != kind}
        assert self.rows() == before

    @rule(data=st.data())
    def add_again(self, data: st.DataObject) -> None:
        known = sorted(self.pending | self.held)
        if known:
            before = ids(self.rows())
            self.mailbox.add(delivery(data.draw(st.sampled_from(known))), prepend=data.draw(st.booleans()))
            assert ids(self.rows()) == before

    @rule(count=st.integers(1, 4))
    def commit(self, count: int) -> None:
        for _ in range(min(count, len(self.uncommitted))):
            id, prepend, replaces = self.uncommitted.popleft()
            taken = self.orders.values()
            if replaces is not None:
                self.orders[id] = self.orders[replaces]
            else:
                self.orders[id] = min(taken, default=1) - 1 if prepend else max(taken, default=-1) + 1
            self.mailbox.ordered(id, self.orders[id])

    @rule(target=reserved)
    def choose_for_turn(self):
        steps = [row for row in self.mailbox.next_step if not row.parked]
        turns = [row for row in self.mailbox.next_turn if not row.parked]
        items = 1 if turns else 0
        if turns and is_notice(turns[0]):
            while items < len(turns) and is_notice(turns[items]):
                items += 1
        return self.chosen(self.mailbox.choose_for_turn(), steps + turns[:items])

    @rule(target=reserved)
    def choose_for_step(self):
        steps = [row for row in self.mailbox.next_step if not row.parked]
        return self.chosen(self.mailbox.choose_for_step(), steps)

    def chosen(self, rows: tuple[PendingRow, ...], expected: list[PendingRow]):
        assert list(rows) == expected
        assert not any(row.id in self.held or row.id in self.gone for row in rows)
        self.pending -= set(ids(rows))
        self.held |= set(ids(rows))
        return rows if rows else multiple()

    @rule(rows=consumes(reserved))
    def claim(self, rows: tuple[PendingRow, ...]) -> None:
        self.mailbox.claimed(rows)
        self.held -= set(ids(rows))
        self.gone |= set(ids(rows))

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        known = [f"m{n}" for n in range(1, self.count + 2)]
        wanted = data.draw(st.lists(st.sampled_from(known), unique=True, max_size=3))
        gone = self.mailbox.withdraw([MessageId(id) for id in wanted])
        assert ids(gone) == [id for id in wanted if id in self.pending]
        self.pending -= set(ids(gone))
        self.gone |= set(ids(gone))

    @rule(data=st.data(), target_=TARGETS, kind=KINDS)
    def replace(self, data: st.DataObject, target_: Target, kind: tuple[str, str | None]) -> None:
        known = self.rows()
        if not known:
            assert self.mailbox.replace(MessageId("nothing"), self.new(target_, True, kind)) is None
            return
        old = data.draw(st.sampled_from(known))
        new = self.new(target_, True, kind)
        line = self.mailbox.next_turn if old.delivery.target == "next-turn" else self.mailbox.next_step
        place = ids(line).index(old.id)
        assert self.mailbox.replace(old.id, new) is old
        row = self.mailbox.get(new.id)
        assert row is not None
        assert (row.order, row.parked) == (old.order, old.parked)
        if target_ == old.delivery.target:
            now = self.mailbox.next_turn if target_ == "next-turn" else self.mailbox.next_step
            assert ids(now).index(new.id) == place
        self.uncommitted.append((new.id, False, old.id))
        self.pending = (self.pending - {old.id}) | {new.id}
        self.gone.add(old.id)

    @rule()
    def park(self) -> None:
        rows = self.mailbox.parkable()
        assert ids(rows) == [
            row.id
            for row in self.rows()
            if row.delivery.wake and not row.parked and row.delivery.message.source.kind in {"user", "coordinator"}
        ]
        self.mailbox.park(rows)
        assert self.mailbox.parkable() == ()

    @rule()
    def unpark(self) -> None:
        was_parked = any(row.parked for row in self.rows())
        assert self.mailbox.unpark() == was_parked
        assert self.mailbox.parked == 0

    @rule()
    def hush(self) -> None:
        rows = self.rows()[:2]
        self.mailbox.hush(rows)
        assert not any(row.delivery.wake for row in rows)

    @rule()
    def reload(self) -> None:
        """A mailbox that is loaded from the store is the same."""
        if not self.uncommitted and not self.held:
            before = (ids(self.mailbox.next_step), ids(self.mailbox.next_turn))
            rows = sorted((stored(row) for row in self.rows()), key=lambda row: row.order)
            orders = enumerate(self.mailbox.all_controls, len(self.orders) + 1)
            self.mailbox = Mailbox([*rows, *(StoredRow(delivery=row.delivery, order=at) for at, row in orders)])
            assert (ids(self.mailbox.next_step), ids(self.mailbox.next_turn)) == before

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        shown = ids(self.rows())
        assert sorted(shown) == sorted(self.pending)
        assert len(self.mailbox) == len(shown)
        assert all(MessageId(id) in self.mailbox for id in self.pending | self.held)
        assert not any(MessageId(id) in self.mailbox for id in self.gone)
        assert all(self.mailbox.get(MessageId(id)) is None for id in self.held | self.gone)

    @invariant()
    def rows_stand_as_the_store_has_them(self) -> None:
        for line in (self.mailbox.next_step, self.mailbox.next_turn):
            orders = [row.order for row in line if row.order is not None]
            assert orders == sorted(orders)
            if not self.uncommitted:
                assert len(orders) == len(line)

    @invariant()
    def what_it_says_about_itself_is_so(self) -> None:
        rows = self.rows()
        assert self.mailbox.is_runnable == any(row.delivery.wake and not row.parked for row in rows)
        assert self.mailbox.has_input == any(not row.parked for row in rows)
        assert self.mailbox.parked == sum(row.parked for row in rows)
        assert ids(self.mailbox.all_controls) == list(self.orders_given)
        assert self.mailbox.is_stopping == ("stop" in self.orders_given.values())
        assert len(self.mailbox) == len(rows)


MailboxMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestMailbox = MailboxMachine.TestCase


# The rules in words. Source: behaviour IN-18 to IN-20.


def filled(*deliveries: Delivery) -> Mailbox:
    mailbox = Mailbox()
    for order, one in enumerate(deliveries):
        mailbox.add(one, order=order)
    return mailbox


def test_a_turn_takes_all_of_next_step_and_then_one_of_next_turn() -> None:
    mailbox = filled(
        delivery("t1"), delivery("s1", target="next-step"), delivery("t2"), delivery("s2", target="next-step")
    )
    assert ids(mailbox.choose_for_turn()) == ["s1", "s2", "t1"]
    assert ids(mailbox.next_turn) == ["t2"]


def test_two_follow_ups_are_two_turns() -> None:
    mailbox = filled(delivery("t1"), delivery("t2"))
    assert [ids(mailbox.choose_for_turn()) for _ in range(3)] == [["t1"], ["t2"], []]


def test_notices_at_the_head_are_one_item_until_something_else_comes() -> None:
    def notice(id: str) -> Delivery:
        return delivery(id, kind="subagent-settled", form="notice")

    task = delivery("n3", kind="plugin", form="notice")
    mailbox = filled(notice("n1"), notice("n2"), task, delivery("t1"), notice("n4"))
    assert [ids(mailbox.choose_for_turn()) for _ in range(3)] == [["n1", "n2", "n3"], ["t1"], ["n4"]]


def test_a_message_before_notices_goes_alone() -> None:
    mailbox = filled(delivery("t1"), delivery("n1", kind="subagent-settled", form="notice"))
    assert ids(mailbox.choose_for_turn()) == ["t1"]


def test_between_steps_only_next_step_is_taken() -> None:
    mailbox = filled(delivery("t1"), delivery("s1", target="next-step"))
    assert ids(mailbox.choose_for_step()) == ["s1"]
    assert ids(mailbox.choose_for_step()) == []
    assert ids(mailbox.next_turn) == ["t1"]


def test_parked_rows_are_passed_over_and_go_on_in_their_order() -> None:
    mailbox = filled(delivery("t1"), delivery("n1", kind="subagent-settled", form="notice"), delivery("t2"))
    mailbox.park(mailbox.parkable())
    assert ids(mailbox.choose_for_turn()) == ["n1"]
    assert ids(mailbox.choose_for_turn()) == []
    mailbox.unpark()
    assert ids(mailbox.choose_for_turn()) == ["t1"]
    assert ids(mailbox.choose_for_turn()) == ["t2"]


def test_orders_that_come_late_sort_what_came_from_elsewhere() -> None:
    mailbox = filled(delivery("m1"))
    mailbox.add(delivery("mine"))
    mailbox.add(delivery("theirs"), order=1)
    assert ids(mailbox.next_turn) == ["m1", "theirs", "mine"]
    mailbox.ordered(MessageId("mine"), 2)
    assert ids(mailbox.next_turn) == ["m1", "theirs", "mine"]
    mailbox.add(delivery("late"), order=-1)
    assert ids(mailbox.next_turn) == ["late", "m1", "theirs", "mine"]
