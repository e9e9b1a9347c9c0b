"""Lines of the protocol as messages of the SDK, whatever the other side has written.

The SDK passes over what it cannot read, and whoever asked waits for ever. Here half a character, which programs leave
where they cut a text, is mended; and of what cannot be mended somebody is told.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

import mcp_types as wire
from pydantic import ValidationError

__all__ = ["Unreadable", "read_line", "render_line", "too_long"]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A frame that is none."""

    is_request: bool
    """Its writer waits for an answer; otherwise it may be one."""
    error: wire.JSONRPCError
    """What became of it, for whoever waits."""


def read_line(line: bytes) -> list[wire.JSONRPCMessage | Unreadable]:
    """The frames of a line: one, or those of a batch in their order; none for an empty line."""
    if not line.strip():
        return []
    text = line.decode("utf-8", "replace")
    try:
        return [wire.jsonrpc_message_adapter.validate_json(text, by_name=False)]
    except ValueError:
        pass
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return [_unreadable({}, wire.PARSE_ERROR, f"the line is no JSON: {error}")]
    return [_frame(one) for one in (cast("list[Any]", value) if isinstance(value, list) else [value])]


def render_line(message: wire.JSONRPCMessage) -> bytes:
    """The line that carries the message."""
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def _frame(value: Any) -> wire.JSONRPCMessage | Unreadable:
    if not isinstance(value, dict):
        return _unreadable({}, wire.INVALID_REQUEST, "a frame is an object")
    frame = cast("dict[str, Any]", value)
    try:
        return _kind(frame).model_validate_json(_mended(frame), by_name=False)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return _unreadable(
            frame, wire.INVALID_REQUEST, f"the frame is not what the protocol allows: {place}: {first['msg']}"
        )


def _kind(frame: dict[str, Any]) -> type[wire.JSONRPCMessage]:
    if "method" in frame:
        return wire.JSONRPCRequest if "id" in frame else wire.JSONRPCNotification
    return wire.JSONRPCError if "error" in frame else wire.JSONRPCResponse


def _mended(value: Any) -> str:
    """The value as JSON in which every half of a character is U+FFFD."""
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _unreadable(frame: dict[str, Any], code: int, message: str) -> Unreadable:
    id = frame.get("id")
    known = id if isinstance(id, str) or type(id) is int else None
    error = wire.JSONRPCError(jsonrpc="2.0", id=known, error=wire.ErrorData(code=code, message=message))
    return Unreadable("method" in frame or known is None, error)


def too_long(max_bytes: int) -> Unreadable:
    """What becomes of a line that is longer than `max_bytes`."""
    return _unreadable({}, wire.INVALID_REQUEST, f"a line is longer than {max_bytes} bytes")
