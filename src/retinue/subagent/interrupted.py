"""Children whose open turn does not go on, because `recovery.on_interrupt` is `settle`: closed and settled from their
logs, before anything of their tree runs.

A child that is not in the middle of a turn is left alone: what it has pending still runs. Source: architecture 3.
"""

from __future__ import annotations

import logging

from retinue.base.ids import SessionId
from retinue.errors import CorruptSession, NotQuiet
from retinue.host.host import Host
from retinue.session.events import Event, TurnEnd
from retinue.session.folds import descriptor
from retinue.session.session import Session
from retinue.subagent.activation import activation_outcome
from retinue.subagent.closing import close_turn
from retinue.subagent.settlement import add_settlement
from retinue.subagent.words import bounded_blocks, closing_path

__all__ = ["settle_interrupted"]

_log = logging.getLogger("retinue")
_WHY = "its process ended, and by configuration it does not go on"


async def settle_interrupted(host: Host, root: SessionId) -> None:
    """No child of the stored tree is in the middle of a turn: such turns have ended as `interrupted`.

    A one-shot child ends so, and the call that waits for it gets that result. A continuable one settles so, if nothing
    below it is at work: deepest first, and without waking a parent that is closed here too. Calling it again, also
    after a crash in between, tells nobody twice. A session that cannot be read stays as it is. Call it while nothing of
    the tree is live. Raises: SessionHeld, StoreFailure.
    """
    await host.sessions.hold(root)
    cut_off: list[Session] = []
    for id in await host.sessions.store.owing(root):
        if id == root:
            continue
        try:
            session = await host.sessions.load(id)
        except CorruptSession as error:
            _log.warning("session %s stays as it is: %s", id, error)
            continue
        if _is_cut_off(session):
            cut_off.append(session)
        else:
            host.sessions.unload(session)
    silent = {session.id for session in cut_off}
    try:
        for session in sorted(cut_off, key=lambda one: -one.header.delegation_depth):
            await _close(host, session, silent)
    finally:
        for session in cut_off:
            host.sessions.unload(session)


def _is_cut_off(session: Session) -> bool:
    """Its turn is open, or was closed here by a process that ended before it could settle."""
    if session.header.origin != "subagent":
        return False
    if session.turns.open is not None:
        return True
    end = _last_end(session.events)
    is_interrupted = end is not None and end.reason == "interrupted"
    return is_interrupted and session.turns.activation is not None and not session.mailbox.is_runnable


def _last_end(events: list[Event]) -> TurnEnd | None:
    return next((event.data for event in reversed(events) if isinstance(event.data, TurnEnd)), None)


async def _close(host: Host, session: Session, silent: set[SessionId]) -> None:
    made, activation = descriptor(session.header, session.events), session.turns.activation
    parent_id = session.header.parent_session
    await close_turn(host, session, why=_WHY, withdraws=activation is None)
    if made is None or activation is None or parent_id is None:
        return
    outcome = activation_outcome(session.events, first=activation.seq)
    words = await bounded_blocks(outcome.output, closing_path(host.options.home, session.id, activation.epoch))
    parent = await host.sessions.store.summary(parent_id)
    tx = host.sessions.transaction()
    add_settlement(
        tx,
        session,
        made,
        outcome,
        words,
        is_busy=parent is not None and parent.open_turn is not None,
        is_quiet=parent_id in silent,
        is_delivered=parent is not None,
        parks=True,
        now_ms=host.clock.now_ms(),
    )
    try:
        await tx.submit().wait()
    except NotQuiet:
        _log.info("child %s settles once what it started has", session.id)
