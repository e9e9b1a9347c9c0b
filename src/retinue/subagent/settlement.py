"""The one transaction that ends an activation: the child's end, its usage, its parent's notice.

It holds only while the child has nothing to run and no child at work; else the store refuses all of it.
"""

from __future__ import annotations

from retinue.model.content import InputBlock
from retinue.session.events import ActivationEnd, Descriptor
from retinue.session.rows import Delivery, Target
from retinue.session.session import Session
from retinue.session.transaction import Transaction
from retinue.subagent.notice import settlement_message
from retinue.subagent.outcome import Outcome

__all__ = ["add_settlement"]


def add_settlement(
    tx: Transaction,
    session: Session,
    made: Descriptor,
    outcome: Outcome,
    words: tuple[InputBlock, ...],
    *,
    is_busy: bool,
    is_quiet: bool,
    is_delivered: bool,
    parks: bool,
    now_ms: int,
) -> None:
    """`tx` ends the open activation of `session`.

    `words` is what the parent reads of the outcome's output. A parent that `is_busy` reads the notice in its next
    step; `is_quiet` tells it without waking it, and without `is_delivered` there is nobody to tell. `parks` leaves
    nothing that could run: instructions wait for the next message, and what else would wake is read in whatever turn
    comes next. Source: architecture, section 3.
    """
    activation, parent_id = session.turns.activation, session.header.parent_session
    assert activation is not None
    assert parent_id is not None
    parked = session.mailbox.parked
    if parks:
        rows = (*session.mailbox.next_step, *session.mailbox.next_turn)
        instructions = set(session.mailbox.parkable())
        tx.hush(session, [row for row in rows if row.is_runnable and row not in instructions])
        parked = tx.park(session)
    tx.append(
        session,
        ActivationEnd(
            epoch=activation.epoch,
            outcome=outcome.ending,
            detail=outcome.diagnostic,
            usage=outcome.usage if outcome.usage.requests else None,
            parked=parked,
            undelivered=not is_delivered,
        ),
    )
    tx.answer(session, "stop", session.turns.last)
    tx.settle(session)
    if is_delivered:
        target: Target = "next-step" if is_quiet or is_busy else "next-turn"
        tx.insert(
            Delivery(
                session_id=parent_id,
                message=settlement_message(session.id, activation.epoch, made.label, outcome, words, parked),
                target=target,
                wake=not is_quiet,
                accepted_at=now_ms,
                usage=outcome.usage,
            )
        )
