"""Control rows: what somebody outside an agent, its parent or another process, orders the runtime to do with it.

A row is answered in the batch that has its effect. A crash in between leaves it pending, and whoever loads the session
next obeys it before anything else. Source: behaviour IN-09, IN-34..36.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from retinue.agent.phase import Cause, CauseKind, Running
from retinue.agent.signals import StopAsked
from retinue.errors import RetinueError, error_record
from retinue.session.events import ActivationEnd, TurnEnd
from retinue.session.mailbox import PendingRow, is_instruction
from retinue.session.rows import Delivery
from retinue.session.session import Session
from retinue.session.transaction import Transaction

if TYPE_CHECKING:
    from retinue.agent.agent import Agent

__all__ = ["heed", "heed_at_rest", "stoppable"]

_log = logging.getLogger("retinue")


def heed(agent: Agent, rows: Sequence[PendingRow]) -> None:
    """The control rows take effect, and those that mean what is over already are withdrawn.

    An interrupt is answered when its turn ends, a stop when everything that it stops has ended.
    """
    moot = [row for row in rows if not _is_due(agent, row.delivery)]
    if moot:
        tx = agent.transaction()
        tx.withdraw(agent.session, [row.id for row in moot], "moot")
        tx.submit()
    for row in rows:
        if row not in moot:
            is_stop = row.delivery.kind == "stop"
            if is_stop:
                _announce(agent)
            who: CauseKind = "parent" if row.delivery.message.source.kind == "coordinator" else "user"
            agent.cancel(Cause(who), keep_mailbox=not is_stop, before=row)
            if isinstance(agent.phase, Running) and any(_resumes(later, row) for later in _waiting(agent.session)):
                agent.phase.resumes = True


def heed_at_rest(tx: Transaction, session: Session) -> None:
    """`tx` answers the control rows of a session in which nothing runs, and which nothing drives."""
    stops, interrupts = session.mailbox.controls("stop"), session.mailbox.controls("interrupt")
    tx.withdraw(session, [row.id for row in interrupts], "moot")
    if stops:
        tx.withdraw(session, [row.id for row in stoppable(session, stops[-1])], "stopped")
        tx.answer(session, "stop", session.turns.last)


def stoppable(session: Session, before: PendingRow | None) -> list[PendingRow]:
    """The pending messages of users and parents; if `before` is given, only those that were sent before that row."""
    return [row for row in _waiting(session) if is_instruction(row.delivery) and not _is_later(row, before)]


def _waiting(session: Session) -> tuple[PendingRow, ...]:
    return (*session.mailbox.next_step, *session.mailbox.next_turn)


def _is_later(row: PendingRow, than: PendingRow | None) -> bool:
    """Rows without an order were sent by this process, before it heard of any order from outside."""
    return than is not None and than.order is not None and row.order is not None and row.order > than.order


def _resumes(row: PendingRow, order: PendingRow) -> bool:
    return _is_later(row, order) and row.is_runnable and is_instruction(row.delivery)


def _is_due(agent: Agent, delivery: Delivery) -> bool:
    """What the row means has not ended yet: the turn, or the activation, that was open when it was asked."""
    end = TurnEnd if delivery.kind == "interrupt" else ActivationEnd
    if any(isinstance(event.data, end) for event in agent.session.events[delivery.log_length :]):
        return False
    return delivery.kind == "stop" or isinstance(agent.phase, Running)


def _announce(agent: Agent) -> None:
    asked = StopAsked(agent, [])
    agent.bus.publish(asked)
    agent.environment.start(partial(_conclude, agent, asked.waits))


async def _conclude(agent: Agent, waits: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """The stop is over. A boundary: what cannot be taken down is logged, and what cannot be stored stays pending."""
    for wait in (*waits, agent.wait_idle):
        try:
            await wait()
        except RetinueError as error:
            _log.warning("stopping agent %s: %s", agent.id, error_record(error)[1])
    try:
        agent.stopped()
    except RetinueError as error:
        _log.warning("the stop of agent %s is not over: %s", agent.id, error_record(error)[1])
