"""One-shot children whose task died with its process: nobody waits for them any more, so their turn does not go on.

A child that an open call of its parent still waits for is not among them: that call finds it again. Source: behaviour
TK-04.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from retinue.base.ids import SessionId, derived_id
from retinue.errors import CorruptSession
from retinue.host.host import Host
from retinue.session.events import Event
from retinue.session.folds import Turns, descriptor
from retinue.subagent.closing import close_turn

__all__ = ["close_dead_runs"]

_log = logging.getLogger("retinue")
_WHY = "the task that it belonged to ended with its process"


async def close_dead_runs(host: Host, root: SessionId) -> None:
    """Every one-shot child of the tree that nobody waits for has its open turn closed as `interrupted`.

    What was sent to it and not read is withdrawn. A session that cannot be read stays as it is. Call it while the tree
    is being brought back. Raises: StoreFailure.
    """
    store = host.sessions.store
    awaited: set[str] = set()
    dead: list[SessionId] = []
    for id in await store.owing(root):
        try:
            stored = await store.read(id)
        except CorruptSession as error:
            _log.warning("session %s stays as it is: %s", id, error)
            continue
        awaited.update(_waited_for(id, stored.events))
        made = descriptor(stored.header, stored.events)
        if made is not None and made.mode == "one-shot" and stored.header.origin == "subagent":
            dead.append(id)
    for id in dead:
        if id not in awaited and host.agents.get(id) is None:
            await _close(host, id)


def _waited_for(id: SessionId, events: Sequence[Event]) -> set[str]:
    """The ids of the children that the open calls of a log may wait for."""
    turns = Turns(id)
    for event in events:
        turns.apply(event)
    step = turns.open.step if turns.open is not None else None
    return set() if step is None else {derived_id("agent", id, step.reply_seq, index) for index in step.missing}


async def _close(host: Host, id: SessionId) -> None:
    session = await host.sessions.load(id)
    if session.driver is not None:
        return
    try:
        await close_turn(host, session, why=_WHY, withdraws=True)
    finally:
        host.sessions.unload(session)
