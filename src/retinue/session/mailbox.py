"""The pending messages of one session: two ordered lists and the rules of claiming from them.

Control rows are kept beside the lists: they are no messages, and nothing here counts them as such.

Pure memory: what is durable is decided by the batch that goes with each change. Nothing here waits or wakes.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from retinue.base.ids import MessageId
from retinue.session.rows import Delivery, Kind, StoredRow

__all__ = ["Mailbox", "PendingRow", "is_instruction"]

_NOTICES = frozenset({"subagent-settled"})
_INSTRUCTIONS = frozenset({"user", "coordinator"})


class PendingRow(Struct, eq=False):
    """A pending delivery. `order` is None until the insert is committed; rows without one come last."""

    delivery: Delivery
    order: int | None = None
    parked: bool = False

    @property
    def id(self) -> MessageId:
        """The message's id."""
        return self.delivery.id

    @property
    def is_runnable(self) -> bool:
        """It may start a turn by itself."""
        return self.delivery.wake and not self.parked


class Mailbox:
    """The two lists, in order. A message is in at most one of: a list, a reservation."""

    __slots__ = ("_by_id", "_controls", "_next_step", "_next_turn", "_reserved")

    def __init__(self, rows: Iterable[StoredRow] = ()) -> None:
        self._by_id: dict[MessageId, PendingRow] = {}
        self._next_step: list[PendingRow] = []
        self._next_turn: list[PendingRow] = []
        self._controls: list[PendingRow] = []
        self._reserved: dict[MessageId, PendingRow] = {}
        for row in rows:
            self.add(row.delivery, order=row.order, parked=row.parked)

    @property
    def next_step(self) -> tuple[PendingRow, ...]:
        """Pending rows for the next step, in order."""
        return tuple(self._next_step)

    @property
    def next_turn(self) -> tuple[PendingRow, ...]:
        """Pending rows for turns of their own, in order."""
        return tuple(self._next_turn)

    @property
    def all_controls(self) -> tuple[PendingRow, ...]:
        """Control rows that nobody has answered, in order."""
        return tuple(self._controls)

    def controls(self, kind: Kind) -> tuple[PendingRow, ...]:
        """Those of one kind."""
        return tuple(row for row in self._controls if row.delivery.kind == kind)

    @property
    def is_stopping(self) -> bool:
        """A stop is not over yet: until it is, nothing of the session starts."""
        return bool(self._controls) and bool(self.controls("stop"))

    def __len__(self) -> int:
        return len(self._next_step) + len(self._next_turn)

    def __contains__(self, id: object) -> bool:
        return id in self._by_id or id in self._reserved

    @property
    def is_runnable(self) -> bool:
        """A pending row may start a turn by itself."""
        return any(row.is_runnable for row in self._next_step) or any(row.is_runnable for row in self._next_turn)

    @property
    def has_input(self) -> bool:
        """Something is pending that is not parked."""
        return any(not row.parked for row in (*self._next_step, *self._next_turn))

    def get(self, id: MessageId) -> PendingRow | None:
        """The pending row, unless it is reserved or gone."""
        return self._by_id.get(id)

    def add(self, delivery: Delivery, *, order: int | None = None, parked: bool = False, prepend: bool = False) -> None:
        """The delivery is pending. Adding a known id changes nothing."""
        if delivery.id in self:
            return
        row = PendingRow(delivery, order, parked)
        self._by_id[row.id] = row
        rows = self._list(delivery)
        if prepend:
            rows.insert(0, row)
            return
        rows.append(row)
        if order is not None:
            self._sort(rows)

    def ordered(self, id: MessageId, order: int) -> None:
        """The store gave the row its order."""
        row = self._by_id.get(id) or self._reserved.get(id)
        if row is None or row.order == order:
            return
        row.order = order
        rows = self._list(row.delivery)
        last = rows[-2].order if len(rows) > 1 and rows[-1] is row else None
        if rows and (rows[-1] is not row or (len(rows) > 1 and (last is None or last > order))):
            self._sort(rows)

    def _list(self, delivery: Delivery) -> list[PendingRow]:
        if delivery.is_control:
            return self._controls
        return self._next_step if delivery.target == "next-step" else self._next_turn

    @staticmethod
    def _sort(rows: list[PendingRow]) -> None:
        rows.sort(key=lambda row: (row.order is None, row.order or 0))

    def choose_for_turn(self) -> tuple[PendingRow, ...]:
        """Reserve what opens a turn: every next-step row, then one next-turn item. Source: behaviour IN-18.

        Consecutive notices at the head of next-turn are one item. Parked rows are passed over.
        """
        rows = [row for row in self._next_step if not row.parked]
        free = [row for row in self._next_turn if not row.parked]
        if free:
            rows.append(free[0])
            if _is_notice(free[0]):
                for row in free[1:]:
                    if not _is_notice(row):
                        break
                    rows.append(row)
        return self._reserve(rows)

    def choose_for_step(self) -> tuple[PendingRow, ...]:
        """Reserve what joins the next step of an open turn: every next-step row that is not parked."""
        return self._reserve([row for row in self._next_step if not row.parked])

    def _reserve(self, rows: list[PendingRow]) -> tuple[PendingRow, ...]:
        for row in rows:
            self._drop(row)
            self._reserved[row.id] = row
        return tuple(rows)

    def _drop(self, row: PendingRow) -> None:
        del self._by_id[row.id]
        self._list(row.delivery).remove(row)

    def claimed(self, rows: Iterable[PendingRow]) -> None:
        """The rows, which are reserved or are control rows, became part of a turn."""
        for row in rows:
            if self._reserved.pop(row.id, None) is None and self._by_id.get(row.id) is row:
                self._drop(row)

    def withdraw(self, ids: Iterable[MessageId]) -> tuple[PendingRow, ...]:
        """Those of `ids` that were still pending are gone; they are the answer."""
        gone = [row for id in ids if (row := self._by_id.get(id)) is not None]
        for row in gone:
            self._drop(row)
        return tuple(gone)

    def replace(self, old: MessageId, delivery: Delivery) -> PendingRow | None:
        """`delivery` stands where `old` stood; the answer is the old row, or None if it was not pending."""
        row = self._by_id.get(old)
        if row is None:
            return None
        new = PendingRow(delivery, row.order, row.parked)
        rows = self._list(row.delivery)
        if self._list(delivery) is rows:
            rows[rows.index(row)] = new
        else:
            rows.remove(row)
            self._list(delivery).append(new)
            self._sort(self._list(delivery))
        del self._by_id[old]
        self._by_id[new.id] = new
        return row

    def parkable(self) -> tuple[PendingRow, ...]:
        """The instructions that could start a turn.

        Reports and notices are not among them: they may still open a turn. Source: behaviour IN-36.
        """
        rows = (*self._next_step, *self._next_turn)
        return tuple(row for row in rows if row.is_runnable and is_instruction(row.delivery))

    def park(self, rows: Iterable[PendingRow]) -> None:
        """`rows` start nothing until `unpark`."""
        for row in rows:
            row.parked = True

    def hush(self, rows: Iterable[PendingRow]) -> None:
        """`rows` wake nobody by themselves any more."""
        for row in rows:
            row.delivery = replace(row.delivery, wake=False)

    def unpark(self) -> bool:
        """Nothing is parked; the answer says whether anything was."""
        rows = [row for row in self._by_id.values() if row.parked]
        for row in rows:
            row.parked = False
        return bool(rows)

    @property
    def parked(self) -> int:
        """How many rows wait for somebody to resume them."""
        return sum(row.parked for row in self._by_id.values())


def _is_notice(row: PendingRow) -> bool:
    source = row.delivery.message.source
    return source.kind in _NOTICES or (source.kind == "plugin" and source.form == "notice")


def is_instruction(delivery: Delivery) -> bool:
    """The message comes from the user or the parent: such are parked after an interrupt, and resume a parked queue."""
    return not delivery.is_control and delivery.message.source.kind in _INSTRUCTIONS
