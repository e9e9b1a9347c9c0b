"""Exact replacement in a text, and what to say when the text to replace is not there or is there more than once."""

from __future__ import annotations

import re

from retinue.errors import ToolFailure
from retinue.plugins.files._text import numbered, plural, uses_crlf, with_newlines

_COMPARED_LINES = 5_000
_COMPARED_CHARS = 400
_SHOWN_LINES = 12
_NUMBERED = re.compile(r"\s*\d+\t")


def replaced(text: str, old: str, new: str, *, every: bool) -> tuple[str, list[int]]:
    """`text` with `old` replaced by `new` once, or everywhere, and where each replacement now starts.

    In a text with CR LF line ends, a newline in `old` stands for either line end, and `new` gets the text's own.
    Raises: ToolFailure `EDIT_NOT_FOUND` or `EDIT_NOT_UNIQUE` with candidates, `EDIT_EMPTY` or `EDIT_SAME`.
    """
    if not old:
        raise ToolFailure("EDIT_EMPTY", "old_string is empty; use `write` to create a file or replace all of it")
    if old == new:
        raise ToolFailure("EDIT_SAME", "old_string and new_string are the same; there is nothing to change")
    spans = _spans(text, old)
    if not spans:
        raise ToolFailure("EDIT_NOT_FOUND", f"old_string is not in the file.{_candidates(text, old)}")
    if len(spans) > 1 and not every:
        at = ", ".join(str(text.count("\n", 0, start) + 1) for start, _ in spans[:10])
        raise ToolFailure(
            "EDIT_NOT_UNIQUE",
            f"old_string occurs {len(spans)} times, at {'lines' if len(spans) > 1 else 'line'} {at}"
            f"{' and more' if len(spans) > 10 else ''}; add neighbouring lines to name one place, or set replace_all",
        )
    put = with_newlines(new, crlf=uses_crlf(text))
    pieces: list[str] = []
    places: list[int] = []
    done = length = 0
    for start, end in spans:
        pieces += (text[done:start], put)
        length += start - done
        places.append(length)
        length += len(put)
        done = end
    return "".join((*pieces, text[done:])), places


def _spans(text: str, old: str) -> list[tuple[int, int]]:
    """Where `old` occurs, without overlaps, from the left."""
    if "\r\n" in text and "\n" in old:
        lines = (re.escape(line) for line in old.replace("\r\n", "\n").split("\n"))
        return [match.span() for match in re.finditer("\r?\n".join(lines), text)]
    found: list[tuple[int, int]] = []
    at = text.find(old)
    while at >= 0:
        found.append((at, at + len(old)))
        at = text.find(old, at + len(old))
    return found


def _candidates(text: str, old: str) -> str:
    """What the model may have meant, in words."""
    wanted = old.replace("\r\n", "\n").strip("\n").split("\n")
    if all(_NUMBERED.match(line) for line in wanted):
        return " It seems to hold line numbers, which are not part of the file; leave them out."
    lines = text.replace("\r\n", "\n").split("\n")
    loose = [_squeezed(line) for line in lines]
    target = [_squeezed(line) for line in wanted]
    same = (
        [i for i in range(len(lines) - len(target) + 1) if loose[i : i + len(target)] == target] if any(target) else []
    )
    if same:
        places = plural(len(same), "place")
        return f" The same text with other whitespace is at {places}, first:\n{_block(lines, same[0], len(target))}"
    anchor = max(range(len(target)), key=lambda i: len(target[i]))
    pool = [line[:_COMPARED_CHARS] for line in loose[:_COMPARED_LINES]]
    import difflib

    close = difflib.get_close_matches(target[anchor][:_COMPARED_CHARS], list(dict.fromkeys(pool)), n=2, cutoff=0.6)
    blocks = [_block(lines, max(0, pool.index(line) - anchor), len(target)) for line in close]
    return " The nearest text is:\n" + "\n--\n".join(blocks) if blocks else " Nothing in it is similar; read it again."


def _squeezed(line: str) -> str:
    return " ".join(line.split())


def _block(lines: list[str], first: int, count: int) -> str:
    return numbered([line[:500] for line in lines[first : first + min(count, _SHOWN_LINES)]], first + 1)
