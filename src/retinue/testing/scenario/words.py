"""Differences as people read them: where, and which words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from retinue.base.json import JSON, encode

__all__ = ["changed_words", "differences"]

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_AROUND = 12
"""Tokens shown before and after a change."""
_SHORT = 60
"""A value up to so long is shown whole."""


def changed_words(expected: str, actual: str) -> str:
    """The changes of a text, each with a few words around it, on one line: `[-expected-]` and `{+what came+}`."""
    before, after = _TOKEN.findall(expected), _TOKEN.findall(actual)
    parts: list[str] = []
    shown_to = 0
    changes = [c for c in SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if c[0] != "equal"]
    for place, (_, i, j, k, m) in enumerate(changes):
        start = max(shown_to, i - _AROUND)
        end = min(len(before), j + _AROUND, changes[place + 1][1] if place + 1 < len(changes) else len(before))
        parts += ["…"] if start > shown_to else []
        parts += before[start:i]
        parts += [f"[-{''.join(before[i:j])}-]"] if j > i else []
        parts += [f"{{+{''.join(after[k:m])}+}}"] if m > k else []
        parts += before[j:end]
        shown_to = end
    return "".join(parts).replace("\n", "↵") + ("…" if shown_to < len(before) else "")


def differences(expected: JSON, actual: JSON, path: str = "") -> Iterator[str]:
    """One line for each place at which two values differ."""
    match expected, actual:
        case dict(), dict():
            for key in [*expected, *(key for key in actual if key not in expected)]:
                where = f"{path}.{key}" if path else key
                if key not in actual:
                    yield f"{where}: expected {_shown(expected[key])}, and it is not there"
                elif key not in expected:
                    yield f"{where}: not expected: {_shown(actual[key])}"
                else:
                    yield from differences(expected[key], actual[key], where)
        case list(), list():
            yield from _items(expected, actual, path)
        case str(), str() if expected != actual and max(len(expected), len(actual)) > _SHORT:
            yield f"{path}: {changed_words(expected, actual)}"
        case _ if expected != actual:
            yield f"{path}: expected {_shown(expected)}, got {_shown(actual)}"
        case _:
            return


def _items(expected: Sequence[JSON], actual: Sequence[JSON], path: str) -> Iterator[str]:
    before, after = [_key(item) for item in expected], [_key(item) for item in actual]
    for _, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        both = min(j - i, m - k)
        for n in range(both):
            yield from differences(expected[i + n], actual[k + n], f"{path}[{i + n}]")
        for n in range(i + both, j):
            yield f"{path}[{n}]: expected {_shown(expected[n])}, and it is not there"
        for n in range(k + both, m):
            yield f"{path}[{n}]: not expected: {_shown(actual[n])}"


def _key(item: JSON) -> bytes:
    return encode(item)


def _shown(value: JSON) -> str:
    text = repr(value) if isinstance(value, str) else encode(value).decode()
    return text if len(text) <= 3 * _SHORT else f"{text[: 3 * _SHORT]}…"
