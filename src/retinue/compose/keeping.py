"""Whole trees, as a home keeps them: pruned, exported, imported, beside whatever else uses the home.

Every function works on a store and files alone and needs no host and no model.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from retinue.base.clock import Clock
from retinue.base.files import whole_file
from retinue.base.ids import MessageId, SessionId
from retinue.errors import AlreadyExists, BadInput, CorruptSession, OpenTurn, SessionNotFound, StoreFailure
from retinue.session.exports import parse_export, render_export
from retinue.session.rows import Append, Batch, Claim, Create, Insert, Op, Park, StoredRow, Withdraw
from retinue.session.store import Lease, Outcome, SessionRecord, SessionStore
from retinue.session.writer import Writer
from retinue.tools.output import spill_folder

__all__ = ["StoredTree", "export_tree", "find_tree", "import_tree", "prune_tree", "stored_trees"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTree:
    """What a home keeps of one root and all its descendants."""

    root: SessionId
    sessions: int
    events: int
    last_event_at: int
    """Epoch milliseconds, of the whole tree."""
    owes_work: bool
    """A turn or an activation is open somewhere in it, or a message waits to be read."""


async def stored_trees(store: SessionStore) -> list[StoredTree]:
    """Every tree of the home whose root can be read, newest root first. Raises: StoreFailure."""
    return [await _described(store, root.header.id) for root in await store.roots()]


async def find_tree(store: SessionStore, id: str) -> StoredTree:
    """The tree whose root is, or whose id begins with, `id`. Raises: SessionNotFound; BadInput for a child."""
    root = await store.resolve(id)
    if await store.tree(root):
        return await _described(store, root)
    try:
        summary = await store.summary(root)
    except CorruptSession:
        return await _described(store, root)  # nobody can say whose it is; as a tree of its own it can be removed
    if summary is None:
        raise SessionNotFound(f"session {root!r} was removed just now")
    raise BadInput(f"session {root!r} is part of the tree of {summary.root!r}; name that one: trees are kept whole")


async def _described(store: SessionStore, root: SessionId) -> StoredTree:
    sessions = await store.tree(root)
    return StoredTree(
        root=root,
        sessions=len(sessions),
        events=sum(session.events for session in sessions),
        last_event_at=max((session.last_event_at for session in sessions), default=0),
        owes_work=bool(await store.owing(root)),
    )


async def prune_tree(store: SessionStore, root: SessionId, home: Path | None, *, force: bool = False) -> int:
    """The tree is gone: its sessions (the answer is how many), and what they have spilled below `home`.

    Whoever sends something there later is told `undelivered`. Raises: SessionHeld while a living process drives the
    tree; OpenTurn if it owes work, unless it is `force`d; SessionNotFound. Cancelling leaves all of it or nothing, but
    for files that nobody refers to any more.
    """
    async with _held(store, root) as lease:
        if not force and await store.owing(root):
            raise OpenTurn(
                f"the tree of {root!r} still owes work: a turn is open, or a message waits; "
                "resume it first, or remove it all the same with --force"
            )
        ids = await store.remove(lease)
    if home is not None:
        for id in ids:
            shutil.rmtree(spill_folder(home / "spill", id), ignore_errors=True)
    return len(ids)


@asynccontextmanager
async def _held(store: SessionStore, root: SessionId) -> AsyncGenerator[Lease]:
    """The tree is this store's while the block runs. Raises: SessionHeld."""
    lease = await store.acquire(root)
    try:
        yield lease
    finally:
        with anyio.move_on_after(5, shield=True):
            await store.release(lease)


async def export_tree(store: SessionStore, root: SessionId, file: Path, *, replace: bool = False) -> int:
    """`file` holds the whole tree as it was at one moment, for the user alone; the answer is how many sessions.

    Logs hold no keys, so none are in the file. What tools spilled into files of the home is not part of it. Raises:
    SessionNotFound, CorruptSession; BadInput, unless it shall `replace` what is there; StoreFailure if the file
    cannot be written.
    """
    tree = await store.read_tree(root)
    try:
        with whole_file(file, replace=replace) as fresh, fresh.open("wb") as out:
            out.writelines(render_export(tree))
    except OSError as error:
        raise StoreFailure(
            f"the export {str(file)!r} cannot be written: {error.strerror}; free space, or choose another place"
        ) from error
    return len(tree)


async def import_tree(store: SessionStore, clock: Clock, lines: Iterable[bytes]) -> StoredTree:
    """The exported tree is stored under its own ids, with everything that it owes, in one transaction.

    Raises: BadExport for anything that is not a whole and sound export; AlreadyExists if one of its sessions is stored
    here, IdConflict if a message is; SessionHeld; StoreFailure. Nothing is stored then. Cancelling leaves all of it or
    nothing.
    """
    tree = parse_export(lines)
    root = tree[0].header.id
    taken = [record.header.id for record in tree if await _is_stored(store, record.header.id)]
    if taken:
        more = f", and {len(taken) - 1} more of the tree" if len(taken) > 1 else ""
        raise AlreadyExists(f"session {taken[0]!r} is stored here already{more}; nothing was imported")
    async with _held(store, root) as lease:
        await _write(store, clock, Batch(tuple(_operations(tree)), ((root, lease.fence),)))
    return await _described(store, root)


async def _is_stored(store: SessionStore, id: SessionId) -> bool:
    try:
        return await store.resolve(id) == id
    except (SessionNotFound, BadInput):
        return False


async def _write(store: SessionStore, clock: Clock, batch: Batch) -> None:
    outcomes: list[Outcome] = []
    writer = Writer(store, clock)
    writer.submit(batch, outcomes.append)
    await writer.aclose()
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


def _operations(tree: Sequence[SessionRecord]) -> Iterable[Op]:
    """What stores the tree as it was. Rows come in their order, and then what became of them."""
    root = tree[0].header.id
    for record in tree:
        yield Create(record.header, root)
        yield Append(record.header.id, tuple(record.events))
        for row in record.rows:
            yield Insert(row.delivery)
            yield from _fate(record.header.id, row)


def _fate(session: SessionId, row: StoredRow) -> Iterable[Op]:
    ids: tuple[MessageId, ...] = (row.delivery.id,)
    if row.turn is not None:
        yield Claim(session, ids, row.turn)
    elif row.reason is not None:
        yield Withdraw(session, ids, row.reason)
    elif row.parked:
        yield Park(session, ids)
