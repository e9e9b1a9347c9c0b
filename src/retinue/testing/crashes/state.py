"""What a database holds at one moment, as lines that two runs can be compared by, and whether it keeps the rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import anyio

from retinue.base.clock import SystemClock
from retinue.base.ids import MessageId, SessionId
from retinue.model.content import UserMessage, text_of
from retinue.session.events import ActivationEnd, AssistantReply, ToolReturned, TurnEnd, TurnStart
from retinue.session.folds import descriptor
from retinue.session.invariants import tree_violations, violations
from retinue.session.repair import OUTCOME_UNKNOWN
from retinue.session.rows import StoredRow
from retinue.session.store import SessionRecord
from retinue.store.sqlite import SqliteStore
from retinue.testing.host import all_sessions

__all__ = ["State", "look"]


class State:
    """The sessions of one database."""

    def __init__(self, records: Sequence[SessionRecord], owing: Iterable[SessionId], folder: Path) -> None:
        self.records = {record.header.id: record for record in records}
        self.owing = frozenset(owing)
        self._folder = str(folder)
        self._paths: dict[SessionId, str] = {}
        names = {id: f"<{self.path(id)}>" for id in self.records if self.path(id) != id}
        longest_first = sorted(names, key=len, reverse=True)
        self._names = names
        self._ids = re.compile("|".join(map(re.escape, longest_first))) if names else None

    def path(self, id: SessionId) -> str:
        """The labels from the root to the session: the same in every run, which ids are not."""
        if id not in self._paths:
            record = self.records.get(id)
            self._paths[id] = id if record is None else self._make_path(record)
        return self._paths[id]

    def _make_path(self, record: SessionRecord) -> str:
        parent = record.header.parent_session
        if parent is None:
            roots = [one for one in self.records.values() if one.header.parent_session is None]
            return "root" if len(roots) == 1 else record.header.id
        made = descriptor(record.header, record.events)
        label = made.label if made is not None else None
        return f"{self.path(parent)}/{label or record.header.id}"

    def lines(self, smooth: Callable[[str], str] | None = None) -> list[str]:
        """Every message with what became of it, and how every activation and every session ended; sorted.

        What the runtime itself noted about a crash is left out.
        """
        found: list[str] = []
        for id, record in self.records.items():
            entered = {event.data.id for event in record.events if isinstance(event.data, UserMessage)}
            found.extend(
                f"{self.path(id)} got {self._what(row)}: {_fate(row, entered)}"
                for row in record.rows
                if row.delivery.message.source.kind != "runtime"
            )
            ends = [event.data for event in record.events if isinstance(event.data, ActivationEnd)]
            found.extend(f"{self.path(id)} settled activation {end.epoch}: {end.outcome}" for end in ends)
            turns = [event.data for event in record.events if isinstance(event.data, TurnEnd)]
            found.append(f"{self.path(id)} ended: {turns[-1].reason if turns else 'it never ran'}")
        return sorted(line for line in (map(smooth, found) if smooth is not None else found) if line)

    def _what(self, row: StoredRow) -> str:
        if row.delivery.is_control:
            return f"the order to {row.delivery.kind}"
        text = text_of(row.delivery.message.content).replace(self._folder, "FOLDER")
        if self._ids is not None:
            text = self._ids.sub(lambda found: self._names[SessionId(found[0])], text)
        return f"{row.delivery.message.source.kind} {text!r}"

    def last_turn(self, id: SessionId) -> int:
        """The number of the newest turn of the session; 0 before the first."""
        record = self.records.get(id)
        turns = (event.data.turn for event in (record.events if record else ()) if isinstance(event.data, TurnStart))
        return max(turns, default=0)

    def problems(self) -> list[str]:
        """Every broken rule of logs, mailboxes and trees, and everything that is still owed."""
        found = [
            f"{self.path(id)}: {problem}"
            for id, record in self.records.items()
            for problem in violations(record.events, record.rows, quiescent=True)
        ]
        found.extend(f"{self.path(id)}: {problem}" for id, problem in tree_violations(self.records.values()))
        found.extend(f"{self.path(id)}: it still owes work" for id in sorted(self.owing))
        return found

    def unknown_calls(self) -> list[str]:
        """The calls, as `call_name` gives them, whose result says that their outcome is unknown."""
        found: list[str] = []
        for id, record in self.records.items():
            asked = None
            for event in record.events[record.header.seed_length or 0 :]:
                if isinstance(event.data, AssistantReply):
                    asked = event.data.message.calls
                elif isinstance(event.data, ToolReturned) and event.data.error == OUTCOME_UNKNOWN and asked:
                    call = asked[event.data.index]
                    found.append(f"{self.path(id)} {call.name}")
        return found


def _fate(row: StoredRow, entered: set[MessageId]) -> str:
    if row.state == "claimed":
        if row.delivery.is_control:
            return "obeyed"
        return "read" if row.delivery.id in entered else "taken, and never read"
    if row.state == "pending":
        return "parked" if row.parked else "pending"
    return row.state


async def look(database: Path, folder: Path) -> State:
    """What the database holds now; nothing, if there is none. Raises: StoreFailure, CorruptSession."""
    if not await anyio.Path(database).exists():
        return State((), (), folder)
    store = SqliteStore.open(database, SystemClock(), read_only=True)
    try:
        records: list[SessionRecord] = []
        owing: list[SessionId] = []
        for summary in await all_sessions(store):
            id = summary.header.id
            stored = await store.read(id)
            records.append(SessionRecord(header=stored.header, events=stored.events, rows=await store.read_rows(id)))
            if id == summary.root:
                owing.extend(await store.owing(id))
        return State(records, owing, folder)
    finally:
        await store.aclose()
