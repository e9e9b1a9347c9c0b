"""Who an agent has started: a snapshot of live and stored children that loads, resumes and wakes nobody."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

import anyio
import msgspec
from msgspec import Struct

from retinue.base.ids import SessionId
from retinue.base.json import JSON, JSONObject
from retinue.errors import CorruptSession, RetinueError
from retinue.host.host import Host
from retinue.session.events import DESCRIPTOR_VERSION
from retinue.session.folds import descriptor
from retinue.session.store import SessionSummary
from retinue.subagent.continuation import Continuations

__all__ = ["COLD_READS", "ChildEntry", "Diagnostic", "Entry", "entry_objects", "list_children", "render_entries"]


class ChildEntry(Struct, frozen=True, kw_only=True, tag_field="kind", tag="child"):
    """A continuable child."""

    id: SessionId
    label: str
    status: Literal["running", "idle", "ready"]
    """`idle` = resident between turns; `ready` = stored only, a message resumes it."""
    parent: SessionId
    depth: int
    """1 = a direct child of the caller."""


class Diagnostic(Struct, frozen=True, kw_only=True, tag_field="kind", tag="diagnostic"):
    """A child that cannot be shown, and why."""

    id: SessionId
    reason: Literal["corrupt", "unavailable"]
    parent: SessionId
    depth: int


Entry: TypeAlias = ChildEntry | Diagnostic

_PLACE = ("parent", "depth")
COLD_READS = 4
"""Stored logs that are read at the same time. Source: behaviour LA-12."""


async def list_children(
    host: Host, continuations: Continuations, caller: SessionId, *, scope: Literal["children", "descendants"]
) -> list[Entry]:
    """The caller's children, or all its descendants in pre-order; siblings by creation time, then id.

    One bad child never fails the listing. Raises: StoreFailure if the store cannot be enumerated.
    """
    found: list[tuple[SessionSummary, int]] = []
    seen: set[SessionId] = {caller}
    todo = [(summary, 1) for summary in reversed(await host.sessions.store.children(caller))]
    while todo:
        summary, depth = todo.pop()
        id = summary.header.id
        if id in seen:
            continue
        seen.add(id)
        if summary.header.origin == "subagent":
            found.append((summary, depth))
        if scope == "descendants":
            todo.extend((below, depth + 1) for below in reversed(await host.sessions.store.children(id)))
    return await _entries(host, continuations, found)


async def _entries(host: Host, continuations: Continuations, found: list[tuple[SessionSummary, int]]) -> list[Entry]:
    """What is shown of each, in the same order; a bounded number of logs is read at once."""
    entries: list[Entry | None] = [None] * len(found)
    readers = anyio.CapacityLimiter(COLD_READS)

    async def look(at: int) -> None:
        async with readers:
            entries[at] = await _entry(host, continuations, *found[at])

    async with anyio.create_task_group() as group:
        for at in range(len(found)):
            group.start_soon(look, at)
    return [entry for entry in entries if entry is not None]


async def _entry(host: Host, continuations: Continuations, summary: SessionSummary, depth: int) -> Entry | None:
    id, parent = summary.header.id, summary.header.parent_session
    assert parent is not None
    live = host.sessions.live(id)
    header, events = summary.header, live.events if live is not None else []
    if live is None:
        try:
            stored = await host.sessions.store.read(id)
        except CorruptSession:
            return Diagnostic(id=id, reason="corrupt", parent=parent, depth=depth)
        except RetinueError:
            return Diagnostic(id=id, reason="unavailable", parent=parent, depth=depth)
        header, events = stored.header, stored.events
    made = descriptor(header, events)
    if header != summary.header or made is None or made.version != DESCRIPTOR_VERSION:
        return None if live is not None else Diagnostic(id=id, reason="corrupt", parent=parent, depth=depth)
    if made.mode != "continuable":
        return None
    agent = continuations.resident(id)
    status: Literal["running", "idle", "ready"] = "ready" if agent is None else agent.status
    return ChildEntry(id=id, label=made.label or "", status=status, parent=parent, depth=depth)


def entry_objects(entries: list[Entry], *, scope: Literal["children", "descendants"]) -> list[JSON]:
    """The listing as a value: where all are children of the caller, their place is not said. Source: LA-02, LA-03."""
    objects = [cast(JSONObject, msgspec.to_builtins(entry)) for entry in entries]
    if scope == "children":
        objects = [{key: value for key, value in one.items() if key not in _PLACE} for one in objects]
    return list(objects)


def render_entries(entries: list[Entry], *, scope: Literal["children", "descendants"]) -> str:
    """The listing as the model reads it. Source: behaviour LA-05."""
    if not entries:
        return "(no subagents)"
    return "\n".join(_line(entry, scope == "descendants") for entry in entries)


def _line(entry: Entry, is_tree: bool) -> str:
    place = f" parent={entry.parent} depth={entry.depth}" if is_tree else ""
    if isinstance(entry, Diagnostic):
        return f"{entry.id} [diagnostic: {entry.reason}]{place}"
    return f"{entry.id} [{entry.status}]{place} — {' '.join(entry.label.split())}"
