"""Exports: one file per tree, the same bytes for the same tree, and nothing else is taken for one."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.base.ids import MessageId, SessionId
from retinue.errors import BadExport, CorruptSession
from retinue.session.events import Descriptor, Event, Opaque, StepEnd, StepStart, TurnEnd, TurnStart
from retinue.session.exports import EXPORT_VERSION, parse_export, render_export
from retinue.session.rows import StoredRow
from retinue.session.store import SessionRecord
from tests.store.contract import header, message, sent

ROOT = SessionId("root")


def record(id: str, parent: str | None = None) -> SessionRecord:
    """A session with a turn that took one message, and one message that still waits."""
    first, second = f"{id}-1", f"{id}-2"
    data = [TurnStart(1), StepStart(1, 1), message(first), StepEnd(1, 1), TurnEnd(turn=1, reason="completed")]
    return SessionRecord(
        header=header(id, parent),
        events=[Event(seq, 2000 + seq, payload) for seq, payload in enumerate(data)],
        rows=[
            StoredRow(delivery=sent(id, first), order=-3, state="claimed", turn=1),
            StoredRow(delivery=sent(id, second), order=4, parked=True),
        ],
    )


def tree() -> list[SessionRecord]:
    return [record("root"), record("child", "root")]


def lines(of: list[SessionRecord] | None = None) -> list[bytes]:
    return list(render_export(of or tree()))


def sealed(changed: list[bytes]) -> list[bytes]:
    """The lines with a last line that fits them: a change that no checksum finds."""
    body = changed[:-1]
    end = {"lines": len(body), "sha256": sha256(b"".join(body)).hexdigest()}
    return [*body, json.dumps(end).encode() + b"\n"]


def with_line(number: int, **change: Any) -> list[bytes]:
    """The export with fields of one line changed, and sealed again."""
    changed = lines()
    changed[number] = json.dumps({**json.loads(changed[number]), **change}).encode() + b"\n"
    return sealed(changed)


def test_what_was_exported_comes_back_and_exports_to_the_same_bytes() -> None:
    exported = lines()
    back = parse_export(exported)
    assert [(r.header, r.events) for r in back] == [(r.header, r.events) for r in tree()]
    assert [row.order for row in back[0].rows] == [0, 1], "of the order only the order is kept"
    assert [replace(row, order=0) for r in back for row in r.rows] == [
        replace(row, order=0) for r in tree() for row in r.rows
    ]
    assert lines(back) == exported


def test_the_format_is_what_the_guide_says() -> None:
    head, about, event, *_ = map(json.loads, lines())
    assert head == {"format": "retinue-tree", "version": 1, "root": "root", "sessions": 2}
    assert about == {"session": {"id": "root", "created_at": 1000, "cwd": "/work"}, "events": 5, "rows": 2}
    assert event == {"seq": 0, "time": 2000, "type": "turn/start", "data": {"turn": 1}}
    *_, row, end = map(json.loads, lines([record("root")]))
    assert row["row"]["delivery"]["message"]["id"] == "root-2"
    assert (row["row"]["order"], row["row"]["state"], row["row"]["parked"]) == (1, "pending", True)
    assert end["lines"] == 9
    assert end["sha256"] == sha256(b"".join(lines([record("root")])[:-1])).hexdigest()


def test_an_event_of_unknown_type_goes_through_if_it_may_be_ignored() -> None:
    known = record("root")
    more = replace(known, events=[*known.events, Event(5, 2005, Opaque("colour/seen", {"colour": "red"}))])
    assert parse_export(lines([more])) == parse_export(lines(parse_export(lines([more]))))
    exported = lines([more])
    assert json.loads(exported[7])["ignorable"] is True
    exported[7] = exported[7].replace(b',"ignorable":true', b"")
    with pytest.raises(BadExport, match="line 8: .*unknown type 'colour/seen'"):
        parse_export(sealed(exported))


def test_a_session_of_another_version_is_not_exported_by_half() -> None:
    made = Descriptor(version=1, mode="continuable", provider="")
    with pytest.raises(CorruptSession, match="'root' was made by another version"):
        lines([SessionRecord(header=header("root"), events=[Event(0, 1, made)], rows=[])])


@pytest.mark.parametrize(
    "first", [b"", b"\n", b"{}\n", b"Dear diary\n", b'{"format":"other","version":1}\n', b"\xff\n"]
)
def test_another_file_is_no_export(first: bytes) -> None:
    with pytest.raises(BadExport, match="the file is no export"):
        parse_export([first, *lines()[1:]])


def test_an_export_of_another_version_is_refused_with_both_numbers() -> None:
    newer = EXPORT_VERSION + 1
    with pytest.raises(BadExport, match=f"has version {newer}, and this Retinue reads version {EXPORT_VERSION};"):
        parse_export(with_line(0, version=newer, more="than we know"))


def test_a_file_that_was_cut_off_anywhere_is_refused() -> None:
    whole = b"".join(lines())
    for length in range(len(whole)):
        with pytest.raises(BadExport):
            parse_export(whole[:length].splitlines(keepends=True))
    with pytest.raises(BadExport, match="was cut off"):
        parse_export(lines()[:-1])


def test_a_file_with_any_byte_changed_is_refused() -> None:
    whole = b"".join(lines())
    for place in range(len(whole)):
        garbled = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        with pytest.raises(BadExport):
            parse_export(garbled.splitlines(keepends=True))


def test_lines_that_are_missing_doubled_or_too_many_are_refused() -> None:
    exported = lines()
    for number in range(len(exported)):
        for other in ([], [exported[number]] * 2):
            with pytest.raises(BadExport):
                parse_export([*exported[:number], *other, *exported[number + 1 :]])
    with pytest.raises(BadExport, match="goes on after the end"):
        parse_export([*exported, b"\n"])


HEAD, ROOT_AT, FIRST_EVENT, CHILD_AT, CHILD_ROW = 0, 1, 2, 9, 15


@pytest.mark.parametrize(
    ("number", "change", "wrong"),
    [
        (HEAD, {"root": "child"}, "'root' stands first and is not the root 'child'"),
        (HEAD, {"sessions": 0}, "line 2"),
        (ROOT_AT, {"session": {"id": "root", "created_at": 1, "origin": "subagent"}}, "'root' stands first"),
        (ROOT_AT, {"session": {"id": "root", "created_at": 1, "seed_length": 9}}, "fewer events than it was given"),
        (ROOT_AT, {"session": {"id": "root", "created_at": 1, "shoe": 9}}, "line 2 .*shoe"),
        (FIRST_EVENT, {"seq": 7}, "it stands at place 0"),
        (FIRST_EVENT, {"data": {"turn": 3}}, "its number is 3, and 1 comes next"),
        (FIRST_EVENT, {"data": {"turn": "one"}}, "line 3: .*cannot be decoded"),
        (FIRST_EVENT, {"type": "turn/begun"}, "unknown type 'turn/begun'"),
        (CHILD_AT, {"session": {"id": "root", "created_at": 1}}, "line 16|stands there twice|session 'child'"),
        (
            CHILD_AT,
            {"session": {"id": "child", "created_at": 1, "origin": "subagent", "parent_session": "uncle"}},
            "'child' is no child of a session that stands before it",
        ),
        (CHILD_ROW, {"row": json.loads(lines()[7])["row"]}, "a row of session 'root'"),
    ],
)
def test_a_tree_that_breaks_a_rule_is_refused_although_its_sum_is_right(
    number: int, change: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(BadExport, match=wrong):
        parse_export(with_line(number, **change))


@pytest.mark.parametrize(
    "row",
    [
        StoredRow(delivery=sent("root", "m"), order=2, state="claimed"),
        StoredRow(delivery=sent("root", "m"), order=2, state="claimed", turn=7),
        StoredRow(delivery=sent("root", "m"), order=2, state="withdrawn"),
        StoredRow(delivery=sent("root", "m"), order=2, state="withdrawn", reason="stopped", parked=True),
        StoredRow(delivery=sent("root", "m"), order=2, turn=1),
        StoredRow(delivery=sent("root", "root-1"), order=2),
    ],
)
def test_a_row_that_no_store_would_have_is_refused(row: StoredRow) -> None:
    known = record("root")
    with pytest.raises(BadExport, match=f"'{MessageId(row.delivery.id)}'"):
        parse_export(lines([replace(known, rows=[*known.rows, row])]))


def test_a_message_id_twice_in_a_tree_is_refused() -> None:
    child = record("child", "root")
    twice = StoredRow(delivery=sent("child", "root-2"), order=2)
    with pytest.raises(BadExport, match="'child': message 'root-2' has two rows"):
        parse_export(lines([record("root"), replace(child, rows=[*child.rows, twice])]))
