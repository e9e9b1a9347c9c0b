"""A tree of sessions as one file that stands alone: JSON lines, the same bytes for the same tree.

The first line names the format and the tree. Then each session in the order of creation, parents first: a line with its
header and how many lines follow for it, its events, its mailbox rows with what became of them. The last line counts and
hashes all before it. Leases are not part of it: who drives a tree is a fact of one home.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from retinue.base.ids import MessageId, SessionId
from retinue.base.json import encode
from retinue.errors import BadExport, CorruptSession
from retinue.session.events import (
    DESCRIPTOR_VERSION,
    Descriptor,
    Event,
    Opaque,
    SessionHeader,
    decode_event,
    encode_payload,
)
from retinue.session.invariants import tree_violations, violations
from retinue.session.rows import StoredRow
from retinue.session.store import SessionRecord

__all__ = ["EXPORT_VERSION", "parse_export", "render_export"]

EXPORT_VERSION = 1
"""Of the files that this version writes and reads."""

_FORMAT = "retinue-tree"

T = TypeVar("T")


class _Line(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Head(_Line, frozen=True, kw_only=True):
    format: str
    version: int
    root: SessionId
    sessions: int


class _Session(_Line, frozen=True, kw_only=True):
    session: SessionHeader
    events: int
    rows: int


class _Event(_Line, frozen=True, kw_only=True, omit_defaults=True):
    seq: int
    time: int
    type: str
    data: Raw
    ignorable: bool = False


class _Row(_Line, frozen=True, kw_only=True):
    row: StoredRow


class _End(_Line, frozen=True, kw_only=True):
    lines: int
    sha256: str


class _Version(Struct, frozen=True):
    format: str = ""
    version: int = 0


def render_export(tree: Sequence[SessionRecord]) -> Iterator[bytes]:
    """The lines of a tree, each with its newline; the same tree gives the same bytes.

    Raises: CorruptSession for a session that was read with something left out.
    """
    digest, count = sha256(), 0
    for value in _values(tree):
        line = encode(value) + b"\n"
        digest.update(line)
        count += 1
        yield line
    yield encode(_End(lines=count, sha256=digest.hexdigest())) + b"\n"


def _values(tree: Sequence[SessionRecord]) -> Iterator[_Line]:
    yield _Head(format=_FORMAT, version=EXPORT_VERSION, root=tree[0].header.id, sessions=len(tree))
    for record in tree:
        yield _Session(session=record.header, events=len(record.events), rows=len(record.rows))
        for event in record.events:
            data = event.data
            if isinstance(data, Descriptor) and data.version != DESCRIPTOR_VERSION:
                raise CorruptSession(
                    f"session {record.header.id!r} was made by another version of Retinue (event {event.seq}), and "
                    "this one would lose part of it; export it with the version that wrote it"
                )
            stored, rest = Raw(encode_payload(data)), isinstance(data, Opaque)
            yield _Event(seq=event.seq, time=event.time, type=event.type, data=stored, ignorable=rest)
        for place, row in enumerate(record.rows):
            yield _Row(row=replace(row, order=place))


def parse_export(lines: Iterable[bytes]) -> list[SessionRecord]:
    """The tree that `lines` hold, root first. It keeps the rules of all logs and mailboxes.

    Raises: BadExport, with the line and what is wrong, for anything that `render_export` would not have written.
    """
    reader = _Reader(lines)
    head = reader.head()
    tree = [reader.session() for _ in range(head.sessions)]
    reader.end()
    _check(head, tree)
    return tree


class _Reader:
    """Takes lines one by one and knows which it is at."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)
        self._digest = sha256()
        self._number = 0

    def _next(self, kind: type[T], *, digested: bool = True) -> T:
        line = next(self._lines, b"")
        self._number += 1
        if not line.endswith(b"\n"):
            raise BadExport(
                f"the file ends at line {self._number}, before the export does: it was cut off; export the tree again"
            )
        if digested:
            self._digest.update(line)
        try:
            return msgspec.json.decode(line, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._wrong(str(error)) from error

    def _wrong(self, what: str) -> BadExport:
        return BadExport(f"line {self._number} is not what an export has there: {what}; export the tree again")

    def head(self) -> _Head:
        first = next(self._lines, b"")
        try:
            found = msgspec.json.decode(first, type=_Version)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            found = _Version()
        if found.format != _FORMAT:
            raise BadExport("the file is no export of a tree of sessions: its first line names no such format")
        if found.version != EXPORT_VERSION:
            raise BadExport(
                f"the export has version {found.version}, and this Retinue reads version {EXPORT_VERSION}; "
                "use the version of Retinue that wrote it"
            )
        self._lines = _again(first, self._lines)
        return self._next(_Head)

    def session(self) -> SessionRecord:
        about = self._next(_Session)
        id = about.session.id
        events = [self._event(id) for _ in range(about.events)]
        rows = [self._row(id, place) for place in range(about.rows)]
        return SessionRecord(header=about.session, events=events, rows=rows)

    def _event(self, id: SessionId) -> Event:
        line = self._next(_Event)
        try:
            return decode_event(id, line.seq, line.time, line.type, bytes(line.data), line.ignorable)
        except CorruptSession as error:
            raise BadExport(f"line {self._number}: {error}") from error

    def _row(self, id: SessionId, place: int) -> StoredRow:
        row = self._next(_Row).row
        if row.delivery.session_id != id or row.order != place:
            raise self._wrong(f"a row of session {row.delivery.session_id!r} at place {row.order}")
        return row

    def end(self) -> None:
        digest, count = self._digest.hexdigest(), self._number
        end = self._next(_End, digested=False)
        if (end.lines, end.sha256) != (count, digest):
            raise BadExport("the export is not what was written: its lines and its last line differ; export it again")
        if next(self._lines, b""):
            raise BadExport(f"the file goes on after the end of the export at line {self._number}; export it again")


def _again(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _check(head: _Head, tree: Sequence[SessionRecord]) -> None:
    """Raises: BadExport for sessions that are no tree, or that break a rule."""
    wrong = [*_misplaced(head, tree)]
    ids: set[MessageId] = set()
    for record in tree:
        id = record.header.id
        wrong.extend(f"session {id!r}: {violation}" for violation in violations(record.events, record.rows))
        wrong.extend(f"session {id!r}: {text}" for text in _row_faults(record.rows, ids))
    wrong.extend(f"session {id!r}: {violation}" for id, violation in tree_violations(tree))
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise BadExport(f"the export breaks the rules of sessions: {wrong[0]}{more}; nothing of it can be used")


def _misplaced(head: _Head, tree: Sequence[SessionRecord]) -> Iterator[str]:
    depths: dict[SessionId | None, int] = {}
    for record in tree:
        header = record.header
        parent = header.parent_session
        if header.id in depths:
            yield f"session {header.id!r} stands there twice"
        elif not depths:
            if header.id != head.root or header.origin is not None:
                yield f"session {header.id!r} stands first and is not the root {head.root!r}"
        elif parent not in depths or header.origin is None or header.delegation_depth <= depths[parent]:
            yield f"session {header.id!r} is no child of a session that stands before it"
        if (header.seed_length or 0) > len(record.events):
            yield f"session {header.id!r} has fewer events than it was given"
        depths[header.id] = header.delegation_depth
    if not tree:
        yield "it holds no session"


def _row_faults(rows: Sequence[StoredRow], seen: set[MessageId]) -> Iterator[str]:
    """Rows that no store would have: an id twice in the tree, a state that the rest of the row does not fit."""
    for row in rows:
        if row.delivery.id in seen:
            yield f"message {row.delivery.id!r} has two rows"
        seen.add(row.delivery.id)
        is_claimed, is_withdrawn = row.state == "claimed", row.state == "withdrawn"
        if (row.turn is not None, row.reason is not None) != (is_claimed, is_withdrawn):
            yield f"message {row.delivery.id!r} is {row.state}, but has turn {row.turn} and reason {row.reason!r}"
        if row.parked and row.state != "pending":
            yield f"message {row.delivery.id!r} is parked and {row.state}"
