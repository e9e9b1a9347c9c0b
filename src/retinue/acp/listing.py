"""Stored sessions, a page at a time, newest first."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from retinue.acp.params import ListParams
from retinue.base.frames import INVALID_PARAMS, Failure
from retinue.base.json import JSON, JSONObject
from retinue.errors import CorruptSession, SessionNotFound
from retinue.session.store import SessionStore, SessionSummary
from retinue.session.title import brief_title, title

__all__ = ["PAGE", "absolute", "list_sessions", "same_folder"]

PAGE = 50
"""Sessions of one answer: each is read for its title."""


async def list_sessions(store: SessionStore | None, params: ListParams, *, elsewhere: Path) -> JSONObject:
    """The result of `session/list`. The cursor is the id of the last session of the page before.

    `elsewhere` is the folder of sessions that have none. Raises: Failure, StoreFailure.
    """
    roots = [] if store is None else await store.roots()
    if params.cwd is not None:
        folder = absolute(params.cwd)
        roots = [root for root in roots if root.header.cwd is not None and same_folder(root.header.cwd, folder)]
    ids = [root.header.id for root in roots]
    if params.cursor is not None and params.cursor not in ids:
        raise Failure(INVALID_PARAMS, "the cursor is none that was given out here, or its session is gone")
    first = 0 if params.cursor is None else [*map(str, ids)].index(params.cursor) + 1
    page = roots[first : first + PAGE]
    told = [] if store is None else [await _info(store, root, elsewhere) for root in page]
    found: list[JSON] = [info for info in told if info is not None]
    result: JSONObject = {"sessions": found}
    if first + PAGE < len(roots):
        result["nextCursor"] = page[-1].header.id
    return result


def absolute(cwd: str) -> Path:
    """The folder that a client names. Raises: Failure for what can be none."""
    if not os.path.isabs(cwd) or "\0" in cwd:
        raise Failure(INVALID_PARAMS, f"cwd must be an absolute path, not {cwd!r}")
    return Path(cwd)


def same_folder(one: str | Path, other: str | Path) -> bool:
    """Both lead to the same place, links followed."""
    return one == other or os.path.realpath(one) == os.path.realpath(other)


async def _info(store: SessionStore, root: SessionSummary, elsewhere: Path) -> JSONObject | None:
    """One line; None for a session that cannot be read or was removed meanwhile, which hides no other."""
    try:
        stored = await store.read(root.header.id)
    except (CorruptSession, SessionNotFound):
        return None
    when = datetime.fromtimestamp(root.last_event_at / 1000, UTC)
    info: JSONObject = {
        "sessionId": root.header.id,
        "cwd": root.header.cwd or str(elsewhere),
        "updatedAt": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    name = brief_title(title(stored))
    if name:
        info["title"] = name
    return info
