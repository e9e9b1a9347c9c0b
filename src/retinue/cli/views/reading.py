"""Reading a home without driving anything: the store opened for reading, no lease, no model client."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from retinue.base.clock import SystemClock
from retinue.base.ids import SessionId
from retinue.cli.options import Common
from retinue.compose.dotenv import with_dotenv
from retinue.compose.stores import open_store, store_path
from retinue.errors import SessionNotFound, StoreFailure
from retinue.session.store import SessionStore, SessionSummary, StoredSession

__all__ = ["Node", "found", "is_owed", "reading", "stored_tree"]


@asynccontextmanager
async def reading(common: Common) -> AsyncGenerator[SessionStore | None]:
    """The configured store, for reading only; None if there is no database yet. Raises: ConfigError, StoreFailure."""
    environ = with_dotenv(os.environ, common.folder)
    config = common.load(environ)
    path = store_path(config, environ)
    if not path.exists() or not path.stat().st_size:
        yield None
        return
    try:
        store = open_store(config, environ, SystemClock(), read_only=True)
    except StoreFailure as error:
        if _is_cut_off(path):
            raise StoreFailure(
                f"the database {str(path)!r} is being made, or the process that made it was cut off; looking repairs "
                "nothing, but the next `retinue run` or `retinue resume` there does"
            ) from error
        from retinue.store.sqlite import is_unborn

        if not is_unborn(path):
            raise
        yield None
        return
    try:
        yield store
    finally:
        await store.aclose()


def _is_cut_off(path: Path) -> bool:
    """A transaction from before the log of writes was cut off: only a writer can roll it back."""
    journal = path.with_name(path.name + "-journal")
    return journal.exists() and journal.stat().st_size > 0


async def found(store: SessionStore | None, id: str) -> tuple[SessionStore, SessionId]:
    """The store and the session that `id`, or a unique prefix, names. Raises: SessionNotFound, BadInput."""
    if store is None:
        raise SessionNotFound(f"no session {id!r} is stored here: there is no database in this home yet")
    return store, await store.resolve(id)


async def is_owed(store: SessionStore, summary: SessionSummary) -> bool:
    """Sessions below that root have work that is not over."""
    if summary.header.origin is not None:
        return False
    return any(id != summary.header.id for id in await store.owing(summary.header.id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A stored session and its place in a tree."""

    summary: SessionSummary
    stored: StoredSession
    depth: int
    """0 for the session that was asked for."""
    is_last: tuple[bool, ...]
    """For each level below the first: whether this branch is the last of its parent."""
    is_owed: bool


async def stored_tree(store: SessionStore, top: SessionId) -> list[Node]:
    """`top` and its delegated descendants, parents before children, siblings oldest first. Raises: CorruptSession."""
    result: list[Node] = []
    todo: list[tuple[SessionId, tuple[bool, ...]]] = [(top, ())]
    while todo:
        id, place = todo.pop()
        summary = await store.summary(id)
        if summary is None:
            continue
        stored, owed = await store.read(id), await is_owed(store, summary)
        result.append(Node(summary=summary, stored=stored, depth=len(place), is_last=place, is_owed=owed))
        children = [child for child in await store.children(id) if child.header.origin == "subagent"]
        last = len(children) - 1
        todo.extend((child.header.id, (*place, i == last)) for i, child in reversed(list(enumerate(children))))
    return result
