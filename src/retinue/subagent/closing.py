"""Closes the open turn of a child that does not go on after its process ended, from its log alone."""

from __future__ import annotations

from retinue.host.host import Host
from retinue.session.folds import OpenStep
from retinue.session.repair import closing_payloads
from retinue.session.session import Session

__all__ = ["close_turn"]


async def close_turn(host: Host, session: Session, *, why: str, withdraws: bool) -> None:
    """The session has no open turn: one that was open ended as `interrupted`, and `why` is its detail.

    What waits for the child is withdrawn, or else parked where it is an instruction and made quiet where it is not, so
    that nothing of it starts by itself. Raises: StoreFailure, LeaseLost.
    """
    tx = host.sessions.transaction()
    rows = (*session.mailbox.next_step, *session.mailbox.next_turn)
    parked = session.mailbox.parked
    if withdraws:
        tx.withdraw(session, [row.id for row in rows], why)
        parked = 0
    else:
        instructions = set(session.mailbox.parkable())
        tx.hush(session, [row for row in rows if row.is_runnable and row not in instructions])
        parked = tx.park(session)
    turn = session.turns.open
    if turn is not None:
        begun = _may_have_begun(host, turn.step) if turn.step is not None else ()
        tx.append(session, *closing_payloads(turn, detail=why, begun=begun, parked=parked))
    await tx.submit().wait()


def _may_have_begun(host: Host, step: OpenStep) -> tuple[int, ...]:
    """Calls that log no start, since their effect is rows, or of which nobody here knows whether it is."""
    tools = ((index, host.tools.get(step.calls[index].name)) for index in step.missing)
    return tuple(index for index, tool in tools if tool is None or tool.effect == "rows")
