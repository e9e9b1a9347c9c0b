"""Mailbox rows and the operations of a batch: everything that can become durable, as plain values."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, field

from retinue.base.ids import MessageId, SessionId
from retinue.model.content import Usage, UserMessage
from retinue.session.events import Event, SessionHeader

__all__ = [
    "Append",
    "Batch",
    "Claim",
    "Committed",
    "Create",
    "Delivery",
    "Hush",
    "Insert",
    "Kind",
    "Op",
    "Park",
    "Replace",
    "RowState",
    "Settle",
    "StoredRow",
    "Target",
    "Unpark",
    "Withdraw",
]

Kind: TypeAlias = Literal["message", "interrupt", "stop"]
Target: TypeAlias = Literal["next-turn", "next-step"]
RowState: TypeAlias = Literal["pending", "claimed", "withdrawn"]


class Delivery(Struct, frozen=True, kw_only=True):
    """One message on its way to one session. Its id is the message's.

    A control row, of kind `interrupt` or `stop`, is no message: it says nothing, wakes nobody, and no model reads it.
    """

    session_id: SessionId
    message: UserMessage
    target: Target
    wake: bool
    accepted_at: int
    """Epoch milliseconds."""
    usage: Usage | None = None
    """What the sender has used, where the message is a settlement."""
    kind: Kind = "message"
    log_length: int = 0
    """Of a control row: how long the session's log was when it was asked. What began later and what had ended before
    are not meant; if what is meant has ended, the row is moot."""

    @property
    def id(self) -> MessageId:
        """The identity of the delivery, from creation to the log."""
        return self.message.id

    @property
    def is_control(self) -> bool:
        """It is an order to the runtime and no message."""
        return self.kind != "message"


class StoredRow(Struct, frozen=True, kw_only=True):
    """A delivery as the store has it. `order` sorts the rows of one session; it may be negative."""

    delivery: Delivery
    order: int
    state: RowState = "pending"
    parked: bool = False
    turn: int | None = None
    """The turn that claimed it."""
    reason: str | None = None
    """Why it was withdrawn."""

    @property
    def is_due(self) -> bool:
        """A message that may start a turn, or a control row."""
        return self.delivery.is_control or (self.delivery.wake and not self.parked)


class Create(Struct, frozen=True):
    """A session begins. `root` is the session whose lease guards it."""

    header: SessionHeader
    root: SessionId


class Append(Struct, frozen=True):
    """Events continue a log; their seqs follow what is stored without a gap."""

    session_id: SessionId
    events: tuple[Event, ...]


class Insert(Struct, frozen=True):
    """A row joins its mailbox behind (or, `prepend`ed, before) all others.

    The same id with an equal message of the same kind in the same session changes nothing; with another it refuses the
    batch. A session that does not exist takes nothing, and the commit says so.
    """

    delivery: Delivery
    prepend: bool = False


class Claim(Struct, frozen=True):
    """Pending rows become part of a turn: exactly these, or the batch is refused."""

    session_id: SessionId
    ids: tuple[MessageId, ...]
    turn: int


class Withdraw(Struct, frozen=True):
    """Pending rows will never be read. Rows that are not pending any more stay as they are."""

    session_id: SessionId
    ids: tuple[MessageId, ...]
    reason: str


class Replace(Struct, frozen=True):
    """A pending row gives its place to another. The old one counts as withdrawn; refused if it is not pending."""

    old: MessageId
    delivery: Delivery


class Park(Struct, frozen=True):
    """These pending rows start nothing until somebody unparks them. Source: decision 0004."""

    session_id: SessionId
    ids: tuple[MessageId, ...]


class Hush(Struct, frozen=True):
    """These pending rows lose their wake flag: they are read in the next turn, whatever opens it."""

    session_id: SessionId
    ids: tuple[MessageId, ...]


class Settle(Struct, frozen=True):
    """A condition: the session has no pending waking row that is not parked, and no delegated child of its own with an
    open activation. If it does not hold, the batch is refused."""

    session_id: SessionId


class Unpark(Struct, frozen=True):
    """All parked rows of the session may start turns again."""

    session_id: SessionId


Op: TypeAlias = Create | Append | Insert | Claim | Withdraw | Replace | Park | Hush | Unpark | Settle


class Batch(Struct, frozen=True):
    """One transaction. All of it becomes durable or none of it.

    `fences` holds, for each tree whose logs or claims the batch changes, the fencing number its writer holds; the batch
    is refused if the stored one differs. Rows for other sessions need none: a row's fence names the sender.
    """

    ops: tuple[Op, ...]
    fences: tuple[tuple[SessionId, int], ...] = ()


class Committed(Struct):
    """What a committed batch came to."""

    orders: dict[MessageId, int] = field(default_factory=dict[MessageId, int])
    """The order of each inserted row, and of each repeated one that is still pending."""
    repeated: set[MessageId] = field(default_factory=set[MessageId])
    """Inserts that were there already, with equal content."""
    undelivered: set[MessageId] = field(default_factory=set[MessageId])
    """Inserts whose session does not exist."""
