"""Who an agent has started: a snapshot of live and stored children that loads, resumes and wakes nobody."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.base.ids import SessionId
from retinue.errors import CorruptSession, RetinueError
from retinue.host.host import Host
from retinue.session.folds import descriptor
from retinue.session.store import SessionSummary
from retinue.subagent.continuation import Continuations

__all__ = ["ChildEntry", "Diagnostic", "Entry", "list_children", "render_entries"]


class ChildEntry(Struct, frozen=True, kw_only=True):
    """A continuable child."""

    id: SessionId
    label: str
    status: Literal["running", "idle", "ready"]
    """`idle` = resident between turns; `ready` = stored only, a message resumes it."""
    parent: SessionId
    depth: int
    """1 = a direct child of the caller."""


class Diagnostic(Struct, frozen=True, kw_only=True):
    """A child that cannot be shown, and why."""

    id: SessionId
    reason: Literal["corrupt", "unavailable"]
    parent: SessionId
    depth: int


Entry: TypeAlias = ChildEntry | Diagnostic


async def list_children(
    host: Host, continuations: Continuations, caller: SessionId, *, scope: Literal["children", "descendants"]
) -> list[Entry]:
    """The caller's children, or all its descendants in pre-order; siblings by creation time, then id.

    One bad child never fails the listing. Raises: StoreFailure if the store cannot be enumerated.
    """
    entries: list[Entry] = []
    seen: set[SessionId] = {caller}
    todo = [(summary, 1) for summary in reversed(await host.sessions.store.children(caller))]
    while todo:
        summary, depth = todo.pop()
        id = summary.header.id
        if id in seen:
            continue
        seen.add(id)
        if summary.header.origin == "subagent":
            entry = await _entry(host, continuations, summary, depth)
            if entry is not None:
                entries.append(entry)
        if scope == "descendants":
            todo.extend((below, depth + 1) for below in reversed(await host.sessions.store.children(id)))
    return entries


async def _entry(host: Host, continuations: Continuations, summary: SessionSummary, depth: int) -> Entry | None:
    id, parent = summary.header.id, summary.header.parent_session
    assert parent is not None
    live = host.sessions.live(id)
    try:
        events = live.events if live is not None else (await host.sessions.store.read(id)).events
    except CorruptSession:
        return Diagnostic(id=id, reason="corrupt", parent=parent, depth=depth)
    except RetinueError:
        return Diagnostic(id=id, reason="unavailable", parent=parent, depth=depth)
    made = descriptor(summary.header, events)
    if made is None or made.version != 2:
        return None if live is not None else Diagnostic(id=id, reason="corrupt", parent=parent, depth=depth)
    if made.mode != "continuable":
        return None
    agent = continuations.resident(id)
    status: Literal["running", "idle", "ready"] = "ready" if agent is None else agent.status
    return ChildEntry(id=id, label=made.label or "", status=status, parent=parent, depth=depth)


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
