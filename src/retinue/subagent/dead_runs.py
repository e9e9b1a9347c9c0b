"""One-shot children whose task died with its process: nobody waits for them any more, so their turn does not go on.

A child that an open call of its parent still waits for is not among them, unless the parent is: that call finds it
again. Source: behaviour TK-04.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from retinue.base.ids import SessionId, derived_id
from retinue.errors import CorruptSession, SessionNotFound
from retinue.host.host import Host
from retinue.session.events import Event, WorkflowAgentStart
from retinue.session.folds import Turns, descriptor
from retinue.subagent.closing import close_turn

__all__ = ["close_dead_run", "find_dead_runs"]

_log = logging.getLogger("retinue")
_WHY = "the task that it belonged to ended with its process"


async def find_dead_runs(host: Host, ancestries: Mapping[SessionId, tuple[SessionId, ...]]) -> set[SessionId]:
    """The one-shot children that nobody waits for, among these sessions and everyone above them.

    `ancestries` has everyone above each session, nearest first. A session that cannot be read is not among them.
    Raises: StoreFailure.
    """
    above = {id: len(ancestry) for id, ancestry in ancestries.items()}
    for ancestry in ancestries.values():
        above.update((id, len(ancestry) - place) for place, id in enumerate(ancestry, 1))
    awaited: set[str] = set()
    dead: set[SessionId] = set()
    for id in sorted(above, key=lambda id: (above[id], id)):
        try:
            stored = await host.sessions.store.read(id)
        except (CorruptSession, SessionNotFound) as error:
            _log.warning("session %s stays as it is: %s", id, error)
            continue
        made = descriptor(stored.header, stored.events)
        is_one_shot = made is not None and made.mode == "one-shot" and stored.header.origin == "subagent"
        if is_one_shot and id not in awaited and host.agents.get(id) is None:
            dead.add(id)
        else:
            awaited.update(_waited_for(id, stored.events))
    return dead


async def close_dead_run(host: Host, id: SessionId) -> None:
    """The run has no open turn any more, closed as `interrupted`, and what it was sent and did not read is withdrawn.

    A run that somebody drives after all, and one that cannot be read, stays as it is. Raises: StoreFailure.
    """
    try:
        session = await host.sessions.load(id)
    except CorruptSession as error:
        _log.warning("session %s stays as it is: %s", id, error)
        return
    if session.driver is not None:
        return
    try:
        await close_turn(host, session, why=_WHY, withdraws=True)
    finally:
        if session.driver is None:  # else a call that waits for it has found it meanwhile
            host.sessions.unload(session)


def _waited_for(id: SessionId, events: Sequence[Event]) -> set[str]:
    """The ids of the children that the open calls of a log may wait for."""
    turns = Turns(id)
    for event in events:
        turns.apply(event)
    step = turns.open.step if turns.open is not None else None
    if step is None:
        return set()
    of_scripts = {
        event.data.id
        for event in events[step.reply_seq :]
        if isinstance(event.data, WorkflowAgentStart) and event.data.index in step.missing
    }
    return {derived_id("agent", id, step.reply_seq, index) for index in step.missing} | of_scripts
