"""What parents and children say of each other: settlements and reports."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.base.ids import MessageId, SessionId
from retinue.session.events import ActivationEnd, ToolReturned
from retinue.session.invariants.violation import Violation
from retinue.session.store import SessionRecord

__all__ = ["tree_violations"]


def tree_violations(records: Iterable[SessionRecord]) -> list[tuple[SessionId, Violation]]:
    """Every broken rule between parents and children, with the child that broke it.

    The settlements in a parent's mailbox are exactly the settled activations of its children, and what a child reported
    in an activation stands before that activation's settlement. Source: behaviour CN-01, CQ-01..05.
    """
    known = {record.header.id: record for record in records}
    found: list[tuple[SessionId, Violation]] = []
    for id, record in known.items():
        parent = known.get(record.header.parent_session or SessionId(""))
        if parent is not None and record.header.origin == "subagent":
            found.extend((id, violation) for violation in _between(parent, record))
    for record in known.values():
        for row in record.rows:
            source = row.delivery.message.source
            sender = source.sender_session_id
            if source.kind == "subagent-settled" and sender is not None and sender not in known:
                text = f"message {row.delivery.id!r} settles a child that does not exist"
                found.append((record.header.id, Violation(None, "settlement-has-child", text)))
    return found


def _between(parent: SessionRecord, child: SessionRecord) -> list[Violation]:
    found: list[Violation] = []
    sent = sorted(
        (row for row in parent.rows if row.delivery.message.source.sender_session_id == child.header.id),
        key=lambda row: row.order,
    )
    orders = {row.delivery.id: row.order for row in sent}
    settled = [row.order for row in sent if row.delivery.message.source.kind == "subagent-settled"]
    ends = 0
    for event in child.events[child.header.seed_length or 0 :]:
        data = event.data
        if isinstance(data, ActivationEnd) and not data.undelivered:
            ends += 1
        elif isinstance(data, ToolReturned) and data.error is None and data.meta:
            order = orders.get(MessageId(str(data.meta.get("message_id"))))
            is_early = order is not None and ends > 0 and len(settled) >= ends and order < settled[ends - 1]
            is_late = order is not None and len(settled) > ends and order > settled[ends]
            if is_early or is_late:
                text = f"its report {data.meta['message_id']!r} is not with activation {ends + 1} in its parent's order"
                found.append(Violation(event.seq, "report-before-settlement", text))
    if len(settled) != ends:
        text = f"{ends} of its activations settled, and its parent has {len(settled)} notices of that"
        found.append(Violation(None, "one-settlement-each", text))
    return found
