"""A log as an expected file: one JSON object a line, without seqs and times; and the comparison of two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import cast

from retinue.base.json import JSON, JSONObject, decode, encode
from retinue.session.events import Event, RequestHeader, RequestHeaderChange, ToolReturned, encode_payload
from retinue.testing.scenario.names import Names
from retinue.testing.scenario.taken import TakenSession
from retinue.testing.scenario.words import differences

__all__ = ["compare_logs", "is_json", "render_log"]


def render_log(session: TakenSession, names: Names, header: Callable[[RequestHeader], JSONObject]) -> str:
    """The log with stable names. The first line is the session's own header; `header` renders those of requests."""
    about = cast(JSONObject, decode(encode(session.header)))
    for key in ("id", "created_at", "version"):
        about.pop(key, None)
    lines: list[JSONObject] = [{"type": "session", "data": about}]
    for event in _in_order(session.events):
        data: JSON = decode(encode_payload(event.data))
        if isinstance(event.data, RequestHeaderChange):
            data = {"header": header(event.data.header), "reason": event.data.reason}
        lines.append({"type": event.type, "data": data})
    return "".join(names(encode(line).decode()) + "\n" for line in lines)


def _in_order(events: Sequence[Event]) -> Iterator[Event]:
    """The events with neighbouring results in the order of their calls: which of two overlapping calls ends first
    depends on the machine, and the model reads their results in this order anyway."""
    for _, part in groupby(events, lambda event: isinstance(event.data, ToolReturned)):
        yield from sorted(part, key=_index)


def _index(event: Event) -> int:
    """0 for whatever is no result: sorting by it changes no order."""
    return event.data.index if isinstance(event.data, ToolReturned) else 0


def compare_logs(expected: str, actual: str) -> Iterator[str]:
    """One line for each difference: the number of the event (the session's header is 0), its type, and the words."""
    for number, line in enumerate(expected.splitlines(), 1):
        if not line.startswith("{") or not is_json(line):
            yield f"line {number} of what is expected is no event: {line[:80]}"
            return
    before, after = _parsed(expected), _parsed(actual)
    keys = [encode(event) for event in before], [encode(event) for event in after]
    for what, i, j, k, m in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if what != "equal":
            yield from _compare_part(before, (i, j), after, (k, m))


def is_json(text: str) -> bool:
    """False for what a merge left in conflict, say."""
    try:
        decode(text)
    except ValueError:
        return False
    return True


def _parsed(text: str) -> list[JSONObject]:
    return [cast(JSONObject, decode(line)) for line in text.splitlines()]


def _compare_part(
    before: Sequence[JSONObject], old: tuple[int, int], after: Sequence[JSONObject], new: tuple[int, int]
) -> Iterator[str]:
    """Events of a part that differs, paired by their types."""
    types = [_type(e) for e in before[slice(*old)]], [_type(e) for e in after[slice(*new)]]
    for what, i, j, k, m in SequenceMatcher(None, *types, autojunk=False).get_opcodes():
        i, j, k, m = i + old[0], j + old[0], k + new[0], m + new[0]
        if what == "equal":
            for n in range(j - i):
                for line in differences(before[i + n].get("data"), after[k + n].get("data")):
                    yield f"event {k + n} {_type(after[k + n])}: {line}"
            continue
        for n in range(i, j):
            yield f"event {n} {_type(before[n])} is missing: {_short(before[n])}"
        for n in range(k, m):
            yield f"event {n} {_type(after[n])} was not expected: {_short(after[n])}"


def _type(event: JSONObject) -> str:
    return str(event.get("type"))


def _short(event: JSONObject) -> str:
    data: JSON = event.get("data")
    text = encode(data).decode()
    return text if len(text) <= 200 else f"{text[:200]}…"
