"""The `read` tool: numbered lines of a text file, or an image."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from retinue.errors import ToolFailure
from retinue.model.content import Image, Text
from retinue.model.images import image_type
from retinue.plugins.confined import open_regular
from retinue.plugins.files._seen import Seen
from retinue.plugins.files._text import (
    BOM,
    MAX_FILE_BYTES,
    caller_of,
    decode_text,
    is_binary,
    numbered,
    plural,
    told,
)
from retinue.plugins.permissions import Permissions
from retinue.tools.function import tool
from retinue.tools.output import clean_text
from retinue.tools.tool import Tool, ToolContext, ToolResult

_LINE_CHARS = 2_000
_SHOWN_BYTES = 48_000
"""Below the limit at which results are spilled: a file is its own full text."""
_IMAGE_BYTES = 5 * 1024 * 1024


def read_tool(permissions: Permissions, seen: Seen) -> Tool:
    """`read` within `permissions`; what it showed is noted in `seen`."""

    @tool(safe=True, output_limit=2 * _SHOWN_BYTES)
    def read(
        ctx: ToolContext,
        path: Annotated[str, "The file, absolute or relative to the working folder."],
        offset: Annotated[int, "Number of the first line to show, from 1.", Meta(ge=1)] = 1,
        limit: Annotated[int, "How many lines to show at most.", Meta(ge=1)] = 2000,
    ) -> str | ToolResult:
        """Read a file. Text comes back with line numbers, each followed by a tab that is not part of the file.

        Without offset and limit the beginning is shown; a note at the end says how to go on. PNG, JPEG, GIF and WebP
        files are shown as images. Other binary files and folders are refused.
        """
        caller = caller_of(ctx)
        real = permissions.check_read(caller, path)
        data = load(real)
        image = image_type(data)
        if image is not None:
            shown = _image(real, image, data)
            seen.note(caller.id, real, data)
            return shown
        if is_binary(data):
            raise ToolFailure(
                "BINARY_FILE", f"{real} is a binary file of {len(data)} bytes; it cannot be shown as text"
            )
        seen.note(caller.id, real, data)
        return _page(real, decode_text(data), offset, limit)

    return read


def load(real: Path) -> bytes:
    """All bytes of a regular file. Raises: ToolFailure for whatever prevents it, `FILE_TOO_LARGE` among them."""
    with told(real), open_regular(real) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ToolFailure(
            "FILE_TOO_LARGE",
            f"{real} has {max(size, len(data))} bytes, more than {MAX_FILE_BYTES}; search it with `grep` instead",
        )
    return data


def _page(real: Path, text: str, offset: int, limit: int) -> str:
    if not text.removeprefix(BOM):
        return f"({real} is empty)"
    lines = text.removeprefix(BOM).replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    if offset > len(lines):
        raise ToolFailure("OUT_OF_RANGE", f"{real} has {plural(len(lines), 'line')}; offset {offset} is behind the end")
    shown: list[str] = []
    room = _SHOWN_BYTES
    for line in lines[offset - 1 : offset - 1 + limit]:
        cut = line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}… [{len(line) - _LINE_CHARS} more characters]"
        room -= len(clean_text(cut).encode()) + 8
        if room < 0 and shown:
            break
        shown.append(cut)
    last = offset + len(shown) - 1
    page = clean_text(numbered(shown, offset))
    if offset == 1 and last == len(lines):
        return page
    on = f"; use offset {last + 1} to go on" if last < len(lines) else ""
    return f"{page}\n[lines {offset}-{last} of {len(lines)}{on}]"


def _image(real: Path, media_type: str, data: bytes) -> ToolResult:
    if len(data) > _IMAGE_BYTES:
        raise ToolFailure(
            "FILE_TOO_LARGE", f"{real} is an image of {len(data)} bytes; at most {_IMAGE_BYTES} are shown"
        )
    encoded = base64.b64encode(data).decode()
    label = f"{clean_text(str(real))} ({media_type}, {len(data)} bytes)"
    return ToolResult(content=(Text(label), Image(media_type, encoded)), value=label)
