"""The `write` and `edit` tools: whole files and exact replacements, never over content that the agent does not know."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from retinue.base.json import JSONObject
from retinue.errors import ToolFailure
from retinue.plugins.confined import FileTaken, open_regular, put_file
from retinue.plugins.files._replace import replaced
from retinue.plugins.files._seen import Seen
from retinue.plugins.files._text import (
    BOM,
    MAX_FILE_BYTES,
    caller_of,
    decode_text,
    encode_text,
    is_binary,
    numbered,
    plural,
    told,
    uses_crlf,
    with_newlines,
)
from retinue.plugins.permissions import Permissions
from retinue.tools.function import tool
from retinue.tools.output import clean_text
from retinue.tools.tool import Tool, ToolContext, ToolResult

_CONTEXT_LINES = 3
_SNIPPET_LINES = 60
_COMPARED_BYTES = 2_000_000
_DIFFERENCE_CHARS = 20_000
"""Of a replaced file, kept in the log to show what changed."""


def write_tool(permissions: Permissions, seen: Seen) -> Tool:
    """`write` within `permissions`; an existing file must be in `seen` as it is now."""

    @tool
    def write(
        ctx: ToolContext,
        path: Annotated[str, "The file, absolute or relative to the working folder."],
        content: Annotated[str, "The whole new content."],
    ) -> ToolResult:
        """Create a file, or replace all of an existing one. Missing folders are made.

        An existing file must have been read with `read` before, and not have changed since. To change a part of a file
        use `edit`, which is shorter and safer.
        """
        caller = caller_of(ctx)
        real = permissions.check_write(caller, path)
        with seen.locked(real), told(real):
            old = _old(real)
            if old is None:
                data = encode_text(content)
                try:
                    put_file(real, data, like=None)
                except FileTaken:
                    raise ToolFailure("FILE_NOT_READ", f"{real} was created meanwhile; `read` it first") from None
            else:
                before, stat = old
                data = _styled(content, before)
                if data != before:
                    if is_binary(before) and not seen.has(caller.id, real):
                        raise ToolFailure("BINARY_FILE", f"{real} is a binary file; remove it first if it shall go")
                    seen.require(caller.id, real, before)
                    put_file(real, data, like=stat)
            seen.note(caller.id, real, data)
        did = "created" if old is None else "replaced"
        lines = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
        change = {} if old is None else difference(old[0], data)
        return _changed(real, f"{did} {real} ({plural(lines, 'line')}, {len(data)} bytes)", did, change)

    return write


def edit_tool(permissions: Permissions, seen: Seen) -> Tool:
    """`edit` within `permissions`; the file must be in `seen` as it is now."""

    @tool
    def edit(
        ctx: ToolContext,
        path: Annotated[str, "The file, absolute or relative to the working folder."],
        old_string: Annotated[str, "The text to replace, exactly as it stands in the file, without line numbers."],
        new_string: Annotated[str, "The text to put in its place; empty to delete."],
        replace_all: Annotated[bool, "Replace every occurrence instead of the only one."] = False,
    ) -> ToolResult:
        """Replace exact text in a file that you have read.

        The old text must occur exactly once, whitespace and indentation included; add neighbouring lines until it does,
        or set replace_all. The file must not have changed since you read it.
        """
        caller = caller_of(ctx)
        real = permissions.check_write(caller, path)
        with seen.locked(real), told(real):
            old = _old(real)
            if old is None:
                raise FileNotFoundError(2, "No such file", str(real))
            before, stat = old
            if is_binary(before):
                raise ToolFailure("BINARY_FILE", f"{real} is a binary file; it cannot be edited as text")
            seen.require(caller.id, real, before)
            text = decode_text(before)
            after, places = replaced(text, old_string, new_string, every=replace_all)
            data = encode_text(after)
            put_file(real, data, like=stat)
            seen.note(caller.id, real, data)
        said = f"replaced {plural(len(places), 'occurrence')} in {real}"
        shown = f"{said}; it now reads:\n{_snippet(after, places[0], new_string)}"
        return _changed(real, shown, "edited", {"line": after.count("\n", 0, places[0]) + 1})

    return edit


def _old(real: Path) -> tuple[bytes, os.stat_result] | None:
    """Content and status of the file, or None if there is none."""
    try:
        with open_regular(real) as file:
            status = os.fstat(file.fileno())
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(data) > MAX_FILE_BYTES:
        raise ToolFailure("FILE_TOO_LARGE", f"{real} has more than {MAX_FILE_BYTES} bytes")
    return data, status


def _styled(content: str, before: bytes) -> bytes:
    """New content in the line ends and with the byte order mark of the old."""
    old = decode_text(before)
    mark = BOM if old.startswith(BOM) and not content.startswith(BOM) else ""
    return encode_text(mark + with_newlines(content, crlf=uses_crlf(old)))


def _snippet(text: str, at: int, new: str) -> str:
    """The lines around the first replacement, numbered."""
    lines = text.replace("\r\n", "\n").split("\n")
    line = text.count("\n", 0, at)
    first = max(0, line - _CONTEXT_LINES)
    last = min(len(lines), line + new.count("\n") + _CONTEXT_LINES + 1)
    shown = [part[:500] for part in lines[first : min(last, first + _SNIPPET_LINES)]]
    more = last - first - len(shown)
    return numbered(shown, first + 1) + (f"\n[{more} more lines]" if more > 0 else "")


def difference(before: bytes, after: bytes) -> JSONObject:
    """Where a text that was replaced differs, for people: the lines before and after, with some around them.

    Nothing if they do not, or if that would be much.
    """
    if before == after or max(len(before), len(after)) > _COMPARED_BYTES or is_binary(before) or is_binary(after):
        return {}
    old, new = _lines(before), _lines(after)
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    most = shorter - head
    tail = next((at for at in range(most) if old[-1 - at] != new[-1 - at]), most)
    first, keep = max(0, head - _CONTEXT_LINES), max(0, tail - _CONTEXT_LINES)
    parts = ["".join(lines[first : len(lines) - keep]) for lines in (old, new)]
    if sum(map(len, parts)) > _DIFFERENCE_CHARS:
        return {}
    return {"line": head + 1, "old_text": parts[0], "new_text": parts[1]}


def _lines(data: bytes) -> list[str]:
    *whole, rest = clean_text(decode_text(data)).replace("\r\n", "\n").split("\n")
    return [*(f"{line}\n" for line in whole), *([rest] if rest else [])]


def _changed(real: Path, text: str, did: str, change: JSONObject) -> ToolResult:
    """`change` are further facts for front ends."""
    facts: JSONObject = {"path": clean_text(str(real)), "did": did}
    return ToolResult.text(clean_text(text), value=facts, meta={**facts, **change})
