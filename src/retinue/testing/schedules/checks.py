"""What must hold when a scenario has ended, whatever it was about."""

from __future__ import annotations

import asyncio
from types import CodeType, FrameType

from retinue.base.ids import MessageId
from retinue.model.content import UserMessage
from retinue.session.folds import descriptor
from retinue.session.invariants import tree_violations, violations
from retinue.session.store import SessionRecord, SessionStore
from retinue.testing.host import all_sessions

__all__ = ["alive", "check_at_rest"]


async def check_at_rest(store: SessionStore) -> None:
    """Nobody owes anything, every log, mailbox and edge between parent and child keeps its rules, and what was settled
    has reached the parent once. Raises: AssertionError with everything that is wrong.
    """
    problems: list[str] = []
    records: list[SessionRecord] = []
    for summary in await all_sessions(store):
        id = summary.header.id
        stored, rows = await store.read(id), await store.read_rows(id)
        record = SessionRecord(header=stored.header, events=stored.events, rows=rows)
        records.append(record)
        problems.extend(f"{id}: {found}" for found in violations(stored.events, rows, quiescent=True))
        problems.extend(f"{id}: {found}" for found in _unread(record))
        if stored.root == id:
            problems.extend(f"{owing}: it owes work, and nobody does it" for owing in await store.owing(id))
    problems.extend(f"{id}: {found}" for id, found in tree_violations(records))
    if problems:
        raise AssertionError("the store is not as it should be at rest:\n- " + "\n- ".join(problems))


def _unread(record: SessionRecord) -> list[str]:
    """Settlements that their parent will not read, or has read more or less often than once.

    What reaches a one-shot run that has died with its process is withdrawn, and nobody misses it.
    """
    found: list[str] = []
    made = descriptor(record.header, record.events)
    may_die = made is not None and made.mode == "one-shot"
    read = [event.data.id for event in record.events if isinstance(event.data, UserMessage)]
    for row in record.rows:
        if row.delivery.message.source.kind == "subagent-settled":
            times = read.count(MessageId(row.delivery.id))
            if row.state == "withdrawn" and not may_die:
                found.append(f"settlement {row.delivery.id!r} was withdrawn")
            elif times != (row.state == "claimed"):
                found.append(f"settlement {row.delivery.id!r} is {row.state}, and was read {times} times")
    return found


def alive(besides: asyncio.Task[object] | None) -> list[str]:
    """Every task that has not ended, except `besides`: its name and what it waits in, outermost first."""
    tasks = sorted((task for task in asyncio.all_tasks() if task is not besides), key=lambda task: task.get_name())
    return [f"{task.get_name()} waits in {' > '.join(_places(task))}" for task in tasks]


def _places(task: asyncio.Task[object]) -> list[str]:
    places: list[str] = []
    at: object = task.get_coro()
    while at is not None:
        frame: FrameType | None = getattr(at, "cr_frame", None) or getattr(at, "ag_frame", None)
        code: CodeType | None = frame.f_code if frame is not None else None
        if frame is not None and code is not None and not _is_plumbing(str(frame.f_globals.get("__name__"))):
            places.append(f"{code.co_qualname}:{frame.f_lineno}")
        at = getattr(at, "cr_await", None) or getattr(at, "ag_await", None)
    return places[-4:]


def _is_plumbing(module: str) -> bool:
    return module.partition(".")[0] in ("anyio", "asyncio", "contextlib")
