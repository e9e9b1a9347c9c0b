"""How much of a result the model is shown: long text keeps its head and tail, and the whole of it goes into a file.

An excerpt is a pure function of text, limit and path, so that the same result always reads the same. Files are private
to the user. A file that cannot be written costs the pointer, never the result.
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote

from anyio import CancelScope, to_thread
from msgspec import Struct

from retinue.model.content import InputBlock, Text
from retinue.tools.tool import CallKey, ToolResult

__all__ = [
    "INLINE_LIMIT",
    "Gap",
    "bound_result",
    "clean_text",
    "cut_head",
    "cut_tail",
    "decode_output",
    "excerpt",
    "join_excerpt",
    "spill_folder",
    "spill_path",
    "spilled_sessions",
    "without_controls",
    "write_private",
]

INLINE_LIMIT = 50_000
"""Bytes of UTF-8 text that a result may show. Source: behaviour TR-18."""

_HEAD_SHARE = 0.6
_NOTE_BYTES = 1_000
"""Reserve for the sentence between head and tail."""
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f]")
_log = logging.getLogger("retinue")


def clean_text(text: str) -> str:
    """`text` as every wire can carry it: lone surrogates, as in undecodable file names, become U+FFFD."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def decode_output(data: bytes) -> str:
    """Bytes of a program as text: undecodable ones and control characters become U+FFFD, line ends become newlines."""
    return without_controls(data.decode("utf-8", "replace").replace("\r\n", "\n"))


def without_controls(text: str) -> str:
    """`text` with U+FFFD for control characters, but for those of lines and the escape."""
    return _CONTROL.sub("\ufffd", text)


def cut_head(data: bytes, limit: int) -> bytes:
    """At most the first `limit` bytes of UTF-8, cut at a line end in its last quarter or else between characters."""
    if len(data) <= limit:
        return data
    line = data.rfind(b"\n", limit - limit // 4, limit)
    if line >= 0:
        return data[: line + 1]
    end = limit
    while end > max(0, limit - 4) and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]


def cut_tail(data: bytes, limit: int) -> bytes:
    """At most the last `limit` bytes of UTF-8, cut at a line end in its first quarter or else between characters."""
    if len(data) <= limit:
        return data
    start = len(data) - limit
    line = data.find(b"\n", start - 1, start + limit // 4)
    if line >= 0:
        return data[line + 1 :]
    while start < min(len(data), len(data) - limit + 4) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


class Gap(Struct, frozen=True, kw_only=True):
    """What stands between head and tail: how much is missing and where it can be read."""

    total_bytes: int
    omitted_bytes: int
    path: Path | None = None
    """The file with the whole text, or None if there is none."""
    kept_bytes: int | None = None
    """How much of the text the file holds, if not all."""

    def render(self) -> str:
        """One bracketed sentence on a line of its own."""
        missing = f"{self.omitted_bytes} of {self.total_bytes} bytes left out here"
        if self.path is None:
            return f"[... {missing}; the full text could not be kept ...]"
        which = "Full text" if self.kept_bytes is None else f"First {self.kept_bytes} bytes"
        how = "use `read` with offset and limit, or `grep` for what you need"
        return f"[... {missing}. {which}: {clean_text(str(self.path))} ({how}) ...]"


def excerpt(text: str, limit: int, path: Path | None) -> str:
    """`text` if it has at most `limit` bytes, else its head and tail around a Gap with `path`, about `limit` in all."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    room = max(0, limit - _NOTE_BYTES)
    head = cut_head(data, int(room * _HEAD_SHARE))
    tail = cut_tail(data, room - int(room * _HEAD_SHARE))
    gap = Gap(total_bytes=len(data), omitted_bytes=len(data) - len(head) - len(tail), path=path)
    return join_excerpt(head.decode(), gap, tail.decode())


def join_excerpt(head: str, gap: Gap, tail: str) -> str:
    """Head, the gap's own line, and tail."""
    before = "" if not head or head.endswith("\n") else "\n"
    return f"{head}{before}{gap.render()}\n{tail}"


def spill_path(folder: Path, key: CallKey) -> Path:
    """Where the full text of a call belongs below `folder`: the same path for the same call, and none for two calls."""
    return spill_folder(folder, key.session_id) / f"{key.seq}-{key.index}.txt"


def spill_folder(folder: Path, session_id: str) -> Path:
    """Where everything that belongs to a session is, below `folder`: a folder of its own, whatever the id is."""
    session = quote(session_id, safe="") or "%00"
    return folder / session.replace(".", "%2E", 1 if session.startswith(".") else 0)


def spilled_sessions(folder: Path) -> list[tuple[Path, str]]:
    """The folders below `folder`, each with the id of the session it belongs to."""
    try:
        return [(path, unquote(path.name).replace("\0", "")) for path in sorted(folder.iterdir()) if path.is_dir()]
    except OSError:
        return []


def write_private(path: Path, data: bytes) -> None:
    """`path` holds `data`, readable by the user alone; missing folders are made. Blocks. Raises: OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


async def bound_result(result: ToolResult, *, limit: int, folder: Path | None, key: CallKey) -> ToolResult:
    """`result` with at most about `limit` bytes of text; longer text is kept in a file below `folder`, if there is one.

    Images stay. The typed value is not touched. Shielded, so that a call that has ended keeps its result.
    """
    texts = [block.text for block in result.content if isinstance(block, Text)]
    if all(text.isascii() for text in texts) and sum(map(len, texts)) <= limit:
        return result
    whole = clean_text("".join(texts))
    data = whole.encode()
    if len(data) <= limit:
        return replace(result, content=tuple(_cleaned(block) for block in result.content))
    path: Path | None = None
    if folder is not None:
        with CancelScope(shield=True):
            path = await to_thread.run_sync(_spill, spill_path(folder, key), data)
    shown: InputBlock = Text(excerpt(whole, limit, path))
    others = tuple(block for block in result.content if not isinstance(block, Text))
    meta = result.meta if path is None else {**result.meta, "spilled_to": clean_text(str(path))}
    return replace(result, content=(shown, *others), meta=meta)


def _cleaned(block: InputBlock) -> InputBlock:
    return Text(clean_text(block.text)) if isinstance(block, Text) else block


def _spill(path: Path, data: bytes) -> Path | None:
    try:
        write_private(path, data)
    except OSError as error:
        _log.warning("the full text of a tool result could not be kept in %s: %s", path, error)
        return None
    return path
