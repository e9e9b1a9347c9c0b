"""Which children of a stored session still owe work: those that must be here before anybody calls it quiet."""

from __future__ import annotations

from retinue.base.ids import SessionId
from retinue.session.store import SessionStore

__all__ = ["owing_children"]


async def owing_children(store: SessionStore, id: SessionId) -> list[SessionId]:
    """The children of the session with an open turn, an open activation or a runnable message, oldest first."""
    children = {summary.header.id: summary.root for summary in await store.children(id)}
    if not children:
        return []
    return [one for one in await store.owing(next(iter(children.values()))) if one in children]
